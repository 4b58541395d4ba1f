#!/usr/bin/env python3
"""Makes a 14 GB checkpoint of Mistral 7B's shape (or another shape), converts it to int4, and runs the package.

    convert_7b.py [--pome POME] [--work FOLDER] [--shape SHAPE] [--keep] [--package PATH] [--csv FILE]

Needs 23 GB of disk and numpy. The checkpoint is deleted at the end unless --keep. Every pass over it begins with none of it
in the page cache. Exits 1 if more than 1 GB of anonymous memory was used, or if the conversion as a whole (reading, work,
writing, fsync) was slower than 300 MB of input per second and core and also slower than the disk: a plain loop that reads
the same files and writes as much as the package, with fsync. The disk's speed when it only reads is reported as well.
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
PIECE_BYTES = 1 << 24


def forget(path):
    """Drops a file from the page cache, as far as the system does that."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_seconds(files, out, n_out):
    """How long a plain loop takes to read these files and to write n_out bytes to `out` meanwhile (0: only to read)."""
    for path in files:
        forget(path)
    buffer, n_in = bytearray(PIECE_BYTES), sum(f.stat().st_size for f in files)
    n_read = n_written = 0
    begin = time.monotonic()
    with open(out, "wb", buffering=0) as to:
        for path in files:
            with open(path, "rb", buffering=0) as f:
                while n := f.readinto(buffer):
                    n_read += n
                    n_written += to.write(memoryview(buffer)[:n_out * n_read // n_in - n_written])
        os.fsync(to.fileno())
    seconds = time.monotonic() - begin
    out.unlink()
    return seconds


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
    print(f"converted in {m['seconds']:.1f} s, {m['cpu_seconds']:.1f} s of cores", flush=True)
    reading = disk_seconds(files, a.work / "probe", 0)
    copying = disk_seconds(files, a.work / "probe", n_out)
    if not a.keep:
        shutil.rmtree(checkpoint)
    said = measuring.run([a.pome, "run", out, "--max-new-tokens", "4", "--temperature", "0", "--ignore-eos", "Four words:"])
    row = measuring.machine()
    wanted = min(CORE_BYTES_PER_SECOND * row["cores"], n_in / copying)
    fast = n_in / m["seconds"] >= wanted
    row |= {
        "shape": a.shape, "input_bytes": n_in, "package_bytes": n_out, "seconds": round(m["seconds"], 2),
        "cpu_seconds": round(m["cpu_seconds"], 2), "input_mb_per_second": round(n_in / m["seconds"] / 1e6),
        "input_mb_per_cpu_second": round(n_in / m["cpu_seconds"] / 1e6), "disk_read_seconds": round(reading, 2),
        "disk_read_write_seconds": round(copying, 2), "wanted_mb_per_second": round(wanted / 1e6),
        "peak_anonymous_bytes": m["peak_anonymous_bytes"], "fast_enough": fast}
    print(f"{n_in / 1e9:.2f} GB to {n_out / 1e9:.3f} GB in {m['seconds']:.1f} s ({row['input_mb_per_second']} MB/s, wanted "
          f"{wanted / 1e6:.0f}; {row['input_mb_per_cpu_second']} MB per second of a core; the disk alone: {reading:.1f} s to "
          f"read, {copying:.1f} s to read and write), {m['peak_anonymous_bytes'] / 1e6:.1f} MB anonymous; "
          f"it says: {said['output'].strip()!r}")
    if a.csv:
        measuring.append(a.csv, [row])
    if not a.package:
        shutil.rmtree(out)
    return 0 if m["peak_anonymous_bytes"] < ANONYMOUS_MAX and fast and said["output"].strip() else 1


if __name__ == "__main__":
    sys.exit(main())
