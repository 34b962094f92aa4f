"""Event loops. A host is what the extension knows of one: who waits on it is woken there, and while streams or loads of
it run, the engine's descriptor is watched. Each engine has one for each loop that uses it."""

import asyncio
import concurrent.futures
import os
import sys
import threading
import weakref

from . import _runnel

#: events in one turn of the loop, so that its timers are not late
EVENTS_PER_TURN = 256
#: how long the pieces of many streams gather at most: bench/bindings/streams.py has what that saves
MOST_HELD_US = 10000


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
        """Something begins to run; on the loop's thread. Its end is told by ended()."""
        if self._descriptor < 0:
            descriptor = self._open(self._core.fd(), self._core.gather_us, MOST_HELD_US)
            try:
                self._loop().add_reader(descriptor, self._core.dispatch, self, EVENTS_PER_TURN)
            except BaseException:
                self._close()
                raise
            self._descriptor = descriptor
        self._begin()

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
        cancelled = None
        while not waiter.done():
            try:
                await asyncio.wait((waiter,))
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def wake(self, waiter):
        """On any thread."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            self._call(loop, self._set, waiter)

    @staticmethod
    def _set(waiter):
        if not waiter.done():
            waiter.set_result(None)

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
    """trio, also through anyio."""

    begin_thread = _begin_thread

    def __init__(self, core, token):
        import trio

        self._trio = trio
        self._core = core
        self._token = token
        self._lock = threading.RLock()  # a garbage collection inside may end another stream
        self._running = 0
        self._watcher = None

    def began(self):
        if self._watcher is None:
            descriptor = os.dup(self._core.fd())  # as AsyncioHost
            self._watcher = self._trio.CancelScope()
            self._trio.lowlevel.spawn_system_task(self._watch, self._watcher, descriptor)
        with self._lock:
            self._running += 1

    async def _watch(self, scope, descriptor):
        try:
            with scope:
                while True:
                    await self._trio.lowlevel.wait_readable(descriptor)
                    self._core.dispatch(None, EVENTS_PER_TURN)
        finally:
            os.close(descriptor)

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
        try:
            self._token.run_sync_soon(function, *arguments)
        except self._trio.RunFinishedError:
            pass

    def tell(self, function, *arguments):
        self._call(self._tell, function, *arguments)

    @staticmethod
    def _tell(function, *arguments):
        try:
            function(*arguments)
        except Exception:  # what it raises would end the loop
            sys.excepthook(*sys.exc_info())

    def future_loop(self):
        return None

    def waiter(self):
        return self._trio.Event()

    @staticmethod
    async def wait(waiter):
        await waiter.wait()

    async def wait_shielded(self, waiter):
        with self._trio.CancelScope(shield=True):
            await waiter.wait()
        await self._trio.lowlevel.checkpoint_if_cancelled()

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

    def current(self):
        """The host of the loop that runs on this thread."""
        if _is_trio():
            key, kind = sys.modules["trio"].lowlevel.current_trio_token(), TrioHost
        else:
            key, kind = asyncio.get_running_loop(), AsyncioHost
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = kind(self._core, key)
        return host
