"""Event loops. A host is what the extension knows of one: who waits on it is woken there, and while streams or loads of
it run, the engine's descriptor is watched. Each engine has one for each loop that uses it."""

import asyncio
import concurrent.futures
import contextlib
import os
import sys
import threading
import weakref

from . import _runnel

#: events in one turn of the loop, so that its timers are not late
EVENTS_PER_TURN = 256
#: how long the pieces of many streams gather at most: bench/bindings/streams.py has what that saves
MOST_HELD_US = 10000
#: between two looks whether an engine is drained
NAP_S = 0.01


def _begin_thread(host, function, *arguments):
    """Calls a function on a thread of its own, at once, and returns a coroutine that waits for what it returns. A task
    that is cancelled meanwhile waits all the same, and is cancelled then."""
    waiter, outcome = host.waiter(), concurrent.futures.Future()

    def run():
        try:
            outcome.set_result(function(*arguments))
        except BaseException as error:
            outcome.set_exception(error)
        host.wake(waiter)

    async def end():
        await host.wait_shielded(waiter)
        return outcome.result()

    threading.Thread(target=run, name="runnel").start()
    return end()


def _take_rest(host):
    """The host's loop watches the engine from now on. Loops that have ended leave events behind: until these are taken
    their streams hold places of the engine, and the request that comes may need one."""
    try:
        host._core.dispatch(None, 0)
    except BaseException:  # of a function that is told
        host.ended()
        raise


class AsyncioHost(_runnel.Watch):
    """asyncio and what looks like it (uvloop)."""

    begin_thread = _begin_thread

    def __init__(self, core, loop):
        self._core = core
        self._loop = weakref.ref(loop)
        self._lock = threading.RLock()  # a garbage collection inside may end another stream
        # What the loop watches: a descriptor of its own, because the engine's goes with the engine, which another
        # thread may close while this loop watches it. -1: none.
        self._descriptor = -1

    def began(self):
        """Something begins to run; on the loop's thread. Its end is told by ended(). Where this raises, nothing has
        begun."""
        watched = self._descriptor >= 0
        if not watched:
            descriptor = self._open(self._core.fd(), self._core.gather_us, MOST_HELD_US)
            try:
                self._loop().add_reader(descriptor, self._core.dispatch, self, EVENTS_PER_TURN)
            except BaseException:
                self._close()
                raise
            self._descriptor = descriptor
        self._begin()
        if not watched:
            _take_rest(self)

    def ended(self):
        """On any thread."""
        if self._end() > 0:
            return
        loop = self._loop()
        if loop is None or loop.is_closed() or asyncio._get_running_loop() is loop:
            self._unwatch()
        else:
            self._call(loop, self._unwatch)

    def _unwatch(self):
        if self._running == 0:
            self.forget()

    @staticmethod
    def _call(loop, function, *arguments):
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not loop.is_closed():
                raise

    def tell(self, function, *arguments):
        """Calls a function of the program on the loop's thread, soon, in the order of these calls and of `wake`; on any
        thread."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            self._call(loop, function, *arguments)

    def watches(self):
        """The loop takes the engine's events; on any thread. One that was stopped takes none until it runs again."""
        loop = self._loop()
        return self._descriptor >= 0 and loop is not None and loop.is_running()

    def future_loop(self):
        """The loop, if its tasks wait for futures; else None."""
        return self._loop()

    def waiter(self):
        return self._loop().create_future()

    @staticmethod
    async def wait(waiter):
        await waiter

    @staticmethod
    async def wait_shielded(waiter):
        cancelled, anyio = None, sys.modules.get("anyio")
        # a scope of anyio's that is cancelled cancels its tasks in every turn of the loop, which would spin
        with contextlib.nullcontext() if anyio is None else anyio.CancelScope(shield=True):
            while not waiter.done():
                try:
                    await asyncio.wait((waiter,))
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled is not None:
            raise cancelled
        if anyio is not None:
            await anyio.lowlevel.checkpoint_if_cancelled()

    def wake(self, waiter):
        """On any thread."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            self._call(loop, self._set, waiter)

    @staticmethod
    def _set(waiter):
        if not waiter.done():
            waiter.set_result(None)

    @staticmethod
    async def nap():
        await asyncio.sleep(NAP_S)

    async def in_thread(self, function, *arguments):
        return await self._loop().run_in_executor(None, function, *arguments)

    def forget(self):
        """Nothing runs, or the engine is being closed; on the loop's thread, or the loop is closed."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.remove_reader(descriptor)
        self._close()


class TrioHost:
    """trio, also through anyio. KeyboardInterrupt or SystemExit of a function of the program would be an internal error
    of trio's where the function is called: a task that waits here has it, or else the next one that comes."""

    begin_thread = _begin_thread

    def __init__(self, core, token):
        import trio

        self._trio = trio
        self._core = core
        self._token = weakref.ref(token)  # it is the host's key, and goes with its loop
        self._lock = threading.RLock()  # a garbage collection inside may end another stream
        self._running = 0
        self._watcher = None
        self._waiting = {}  # waiters of tasks, in their order, and what each is to raise
        self._raised = None  # what the next task is to raise

    def began(self):
        self._raise()
        watched = self._watcher is not None
        if not watched:
            descriptor = os.dup(self._core.fd())  # as AsyncioHost
            self._watcher = self._trio.CancelScope()
            self._trio.lowlevel.spawn_system_task(self._watch, self._watcher, descriptor)
        with self._lock:
            self._running += 1
        if not watched:
            _take_rest(self)

    async def _watch(self, scope, descriptor):
        try:
            with scope:
                is_open = True
                while is_open:
                    await self._trio.lowlevel.wait_readable(descriptor)
                    try:
                        is_open = self._core.dispatch(None, EVENTS_PER_TURN)
                    except BaseException as error:
                        self._hand_over(error)
        finally:
            os.close(descriptor)

    def _hand_over(self, error):
        waiter = next((waiter for waiter, its in self._waiting.items() if its is None), None)
        if waiter is None:
            self._raised = error
        else:
            self._waiting[waiter] = error
            waiter.set()

    def _raise(self):
        error, self._raised = self._raised, None
        if error is not None:
            raise error

    def ended(self):
        with self._lock:
            self._running -= 1
            idle = self._running == 0
        if idle:
            self._call(self._unwatch)

    def _unwatch(self):
        if self._running == 0:
            self.forget()

    def _call(self, function, *arguments):
        token = self._token()
        if token is None:
            return
        try:
            token.run_sync_soon(function, *arguments)
        except self._trio.RunFinishedError:
            pass

    def tell(self, function, *arguments):
        self._call(self._tell, function, *arguments)

    def _tell(self, function, *arguments):
        try:
            function(*arguments)
        except Exception:  # what it raises would end the loop
            sys.excepthook(*sys.exc_info())
        except BaseException as error:
            self._hand_over(error)

    def watches(self):
        return self._watcher is not None and self._token() is not None

    def future_loop(self):
        return None

    def waiter(self):
        return self._trio.Event()

    async def wait(self, waiter):
        self._waiting[waiter] = None
        try:
            await waiter.wait()
        finally:
            self._raised = self._waiting.pop(waiter) or self._raised
        self._raise()

    async def wait_shielded(self, waiter):
        with self._trio.CancelScope(shield=True):
            await waiter.wait()
        self._raise()
        await self._trio.lowlevel.checkpoint_if_cancelled()

    async def nap(self):
        await self._trio.sleep(NAP_S)
        self._raise()

    def wake(self, waiter):
        self._call(waiter.set)

    async def in_thread(self, function, *arguments):
        return await self._trio.to_thread.run_sync(function, *arguments)

    def forget(self):
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None


def _is_trio():
    if "trio" not in sys.modules:
        return False
    import sniffio

    try:
        return sniffio.current_async_library() == "trio"
    except sniffio.AsyncLibraryNotFoundError:
        return False


class Hosts:
    """The hosts of one engine."""

    def __init__(self, core):
        self._core = core
        self._hosts = weakref.WeakKeyDictionary()
        self._used = False

    def take_rest(self):
        """A blocking call begins: as _take_rest, where no loop does it."""
        if self._used and not any(host.watches() for host in list(self._hosts.values())):
            self._core.dispatch(None, 0)

    def current(self):
        """The host of the loop that runs on this thread."""
        if _is_trio():
            key, kind = sys.modules["trio"].lowlevel.current_trio_token(), TrioHost
        else:
            key, kind = asyncio.get_running_loop(), AsyncioHost
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = kind(self._core, key)
            self._used = True
        return host
