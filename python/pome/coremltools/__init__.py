"""Puts the engine behind coremltools, so that ``MLModel.predict`` and its relatives work on Linux.

Importing this module does it, for the running process alone: nothing of the installed coremltools changes on disk.

    import pome.coremltools     # before or after coremltools
    import coremltools as ct

    model = ct.models.MLModel("model.mlpackage")
    model.predict({"x": x})

or without touching a program: ``python -m pome.coremltools script.py ...``; for pytest: ``-p pome.coremltools.pytest_plugin``.

coremltools asks for its macOS module ``libcoremlpython``; it gets :mod:`pome.coremltools.native` instead. Where it asks whether it
runs on macOS, it is told yes, version 15.5, as far as its own functions are concerned; ``sys.platform`` stays as it is. Everything
that fails raises RuntimeError, as the framework's binding does.

``POME_NUMERICS`` ("exact", "fast", "fp16") and ``POME_THREADS`` choose how models run.
"""
from __future__ import annotations

import sys

MACOS_VERSION = (15, 5)  # all branches for iOS 18, none for what came later


def _patch_functions() -> None:
    """coremltools' modules hold these functions by value: so their code is replaced, not their names."""
    import coremltools.models.utils as utils

    def _is_macos():
        return True

    def _macos_version():
        return (15, 5)

    utils._is_macos.__code__ = _is_macos.__code__
    utils._macos_version.__wrapped__.__code__ = _macos_version.__code__
    utils._macos_version.cache_clear()
    if utils._macos_version() != MACOS_VERSION:
        raise ImportError("this version of coremltools cannot be told that it runs on macOS")


def activate() -> None:
    """What importing the module does; doing it twice changes nothing."""
    from . import native

    sys.modules["coremltools.libcoremlpython"] = native
    import coremltools

    coremltools.libcoremlpython = native
    _patch_functions()
    for name, module in list(sys.modules.items()):
        if module is None or not name.startswith("coremltools."):
            continue
        if hasattr(module, "_IS_MACOS"):
            module._IS_MACOS = True
        for known in native.EXPORTED:  # imported before this module was
            if module is not native and getattr(module, known, native) is None:
                setattr(module, known, getattr(native, known))


activate()
