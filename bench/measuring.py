"""Running commands while their memory is watched, and saying on what machine. For the scripts of this folder."""
import csv
import datetime
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.002


def anonymous_bytes(pid):
    """Memory of a process that is not a mapped file; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def run(command, **more):
    """{seconds, cpu_seconds, peak_anonymous_bytes (polled), peak_resident_bytes, output}; raises if the command fails."""
    begin = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True, **more)
    anonymous, usage = 0, None
    while True:
        anonymous = max(anonymous, anonymous_bytes(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    output = process.stdout.read()  # a report, shorter than a pipe's buffer
    if process.returncode:
        raise SystemExit(f"{command[0]} failed with {process.returncode}: {output}")
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_anonymous_bytes": anonymous,
            "peak_resident_bytes": usage.ru_maxrss * 1024, "output": output}


def folder_bytes(path):
    return sum(f.stat().st_size for f in pathlib.Path(path).rglob("*") if f.is_file())


def machine():
    """Columns that every table of results begins with."""
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"date": datetime.date.today().isoformat(), "commit": done.stdout.strip() or "unknown", "cpu": cpu,
            "cores": len(os.sched_getaffinity(0))}


def append(path, rows):
    """Adds rows to a CSV file, with a heading if it is new."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with open(path, "a", newline="") as f:
        w = csv.DictWriter(f, rows[0], lineterminator="\n")
        if is_new:
            w.writeheader()
        w.writerows(rows)
