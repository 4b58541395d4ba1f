#!/usr/bin/env python3
"""Makes a 14 GB checkpoint of Mistral 7B's shape (or another shape), converts it to int4, and runs the package.

    convert_7b.py [--pome POME] [--work FOLDER] [--shape SHAPE] [--keep] [--package PATH] [--csv FILE]

Needs 19 GB of disk and numpy. The checkpoint is deleted at the end unless --keep. Exits 1 if more than 1 GB of anonymous
memory was used, or if it took more than one core's second for 300 MB of input and longer than reading and writing as much
takes the disk.
"""
import argparse
import os
import pathlib
import shutil
import sys
import time

import make_checkpoint
import measuring

ROOT = measuring.ROOT
CORE_BYTES_PER_SECOND, ANONYMOUS_MAX = 300e6, 1e9
SAMPLE_BYTES = 1 << 31


def forget(path):
    """Drops a file from the page cache, as far as the system does that."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_seconds(files, folder, n_in, n_out):
    """How long the disk takes to read n_in bytes of these files and to write n_out, from samples."""
    buffer = bytearray(1 << 24)
    left, begin = min(SAMPLE_BYTES, n_in), time.monotonic()
    n_read = 0
    for path in files:
        with open(path, "rb", buffering=0) as f:
            while n_read < left and (n := f.readinto(buffer)):
                n_read += n
    reading = (time.monotonic() - begin) / n_read
    probe, n_written, begin = folder / "probe", 0, time.monotonic()
    with open(probe, "wb", buffering=0) as f:
        while n_written < min(SAMPLE_BYTES // 2, n_out):
            n_written += f.write(buffer)
        os.fsync(f.fileno())
    writing = (time.monotonic() - begin) / n_written
    probe.unlink()
    print(f"disk: reads {1e-6 / reading:.0f} MB/s, writes {1e-6 / writing:.0f} MB/s")
    return reading * n_in + writing * n_out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--pome", default=str(ROOT / "build/release/cli/pome"))
    p.add_argument("--work", type=pathlib.Path, default=ROOT / "build" / "convert-7b")
    p.add_argument("--shape", choices=make_checkpoint.SHAPES, default="mistral-7b")
    p.add_argument("--package", type=pathlib.Path, help="where the package stays (it is deleted otherwise)")
    p.add_argument("--keep", action="store_true", help="keep the checkpoint")
    p.add_argument("--csv", type=pathlib.Path)
    a = p.parse_args()
    checkpoint, out = a.work / a.shape, a.package or a.work / f"{a.shape}.mlpackage"
    if not checkpoint.exists():
        partial = a.work / f"{a.shape}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        make_checkpoint.write(partial, a.shape, 3, 0)
        partial.rename(checkpoint)
    files = sorted(checkpoint.glob("*.safetensors"))
    n_in = sum(f.stat().st_size for f in files)
    for path in files:
        forget(path)
    m = measuring.run([a.pome, "convert", checkpoint, out, "--quantize", "int4", "--force", "--no-check", "--quiet"])
    n_out = measuring.folder_bytes(out)
    for path in files:
        forget(path)
    disk = disk_seconds(files, a.work, n_in, n_out)
    if not a.keep:
        shutil.rmtree(checkpoint)
    said = measuring.run([a.pome, "run", out, "--max-new-tokens", "4", "--temperature", "0", "--ignore-eos", "Four words:"])
    row = measuring.machine() | {
        "shape": a.shape, "input_bytes": n_in, "package_bytes": n_out, "seconds": round(m["seconds"], 2),
        "cpu_seconds": round(m["cpu_seconds"], 2), "input_mb_per_second": round(n_in / m["seconds"] / 1e6),
        "input_mb_per_cpu_second": round(n_in / m["cpu_seconds"] / 1e6), "disk_seconds": round(disk, 2), "peak_anonymous_bytes": m["peak_anonymous_bytes"]}
    print(f"{n_in / 1e9:.2f} GB to {n_out / 1e9:.3f} GB in {m['seconds']:.1f} s ({row['input_mb_per_second']} MB/s, "
          f"{row['input_mb_per_cpu_second']} MB per second of a core; the disk alone: {disk:.1f} s), "
          f"{m['peak_anonymous_bytes'] / 1e6:.1f} MB anonymous; it says: {said['output'].strip()!r}")
    if a.csv:
        measuring.append(a.csv, [row])
    if not a.package:
        shutil.rmtree(out)
    fast = n_in / m["cpu_seconds"] >= CORE_BYTES_PER_SECOND or m["seconds"] <= disk
    return 0 if m["peak_anonymous_bytes"] < ANONYMOUS_MAX and fast and said["output"].strip() else 1


if __name__ == "__main__":
    sys.exit(main())
