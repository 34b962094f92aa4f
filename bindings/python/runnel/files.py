"""Work on files, beside the engine: looking into a model's file, cache folders, notes of session files."""

import os

from . import _runnel
from ._shared import KvType, Record, TemplateTrait, _templates, plain_options


class File:
    """A GGUF file opened for inspection: `with File(path) as file`."""

    def __init__(self, path, *, architectures=None):
        self._core = _runnel.File(os.fsencode(path))
        if architectures is not None:
            self.set_architectures(architectures)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self._core.close()

    def info(self):
        """The members of runnel_file_info."""
        return Record(**self._core.info())

    def metadata(self):
        """Each entry as a Record of key, type and count (of an array's elements)."""
        return [Record(**self._core.metadata(index)) for index in range(self._core.info()["n_metadata"])]

    def value(self, key):
        """An entry as text, an array as a list of texts. NotFoundError: there is none."""
        for index, entry in enumerate(self.metadata()):
            if entry.key != key:
                continue
            if entry.type.startswith("array"):
                return [self._core.metadata_text(index, element) for element in range(entry.count)]
            return self._core.metadata_text(index, 0)
        raise _runnel.NotFoundError(f"the file has no key {key!r}")

    def tensors(self):
        """The members of runnel_tensor of each."""
        return [Record(**self._core.tensor(index)) for index in range(self._core.info()["n_tensors"])]

    def set_architectures(self, rows):
        """Rows, dicts of the members of runnel_architecture_row, for the calls below."""
        self._core.set_architectures(rows)

    def kv_bytes_per_token(self, kv_type=KvType.F16):
        return self._core.kv_bytes_per_token(plain_options({"kv_type": kv_type})["kv_type"])

    def templates(self):
        return _templates(self._core.template)

    def recommended_sampling(self):
        return self._core.sampling()

    def plan(self):
        """The forward pass as text."""
        return self._core.plan()


def architectures():
    """Those that load: pairs of a name and what its blocks have, in words."""
    return _runnel.architectures()


def render_template(template, context, *, now=0):
    """A chat template by itself; context is a dict of its variables, or their JSON."""
    return _runnel.render_template(template, plain_options({"variables": context})["variables"], int(now))


def inspect_template(template):
    """What a chat template does: the members of runnel_template_info; knows is of TemplateTrait."""
    found = Record(**_runnel.inspect_template(template))
    found.knows = TemplateTrait(found.knows)
    return found


def read_note(path):
    """The note of a session's file, as bytes."""
    return _runnel.read_note(os.fsencode(path))


def _listed(pair):
    rows, totals = pair
    return [Record(**row) for row in rows], Record(**totals)


def cache_ls(path):
    """What a cache folder has: a list of entries, and totals."""
    return _listed(_runnel.cache_ls(os.fsencode(path)))


def cache_inspect(path, fingerprint=None):
    """The records of one fingerprint, parents first."""
    return [Record(**record) for record in _runnel.cache_inspect(os.fsencode(path), fingerprint)]


def cache_verify(path, fingerprint=None):
    """Reads everything: a list of what is damaged, and totals."""
    return _listed(_runnel.cache_verify(os.fsencode(path), fingerprint))


def cache_purge(path, **options):
    """Removes records; options are those of runnel_cache_purge_options. Totals of what was removed."""
    return Record(**_runnel.cache_purge(os.fsencode(path), options))
