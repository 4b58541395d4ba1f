"""Conversions that cannot go well: one clear error, nothing half-written, and what was interrupted goes on."""
import contextlib
import fcntl
import filecmp
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
POME = os.environ.get("POME", str(ROOT / "build" / "release" / "cli" / "pome"))
NOBODY = 65534


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    return {name: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def change_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def make_large(folder, hidden=256, ffn=512, layers=6, vocab=4096):
    """Weights enough to be interrupted in: 6 million, in 57 tensors."""
    rng = np.random.default_rng(1)

    def tensor(*shape):
        values = rng.standard_normal(shape, np.float32) / np.float32(16)
        return "BF16", shape, (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()

    tensors = {"model.embed_tokens.weight": tensor(vocab, hidden), "model.norm.weight": tensor(hidden),
               "lm_head.weight": tensor(vocab, hidden)}
    for i in range(layers):
        p = f"model.layers.{i}."
        for name, shape in {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden // 2, hidden),
                            "self_attn.v_proj": (hidden // 2, hidden), "self_attn.o_proj": (hidden, hidden),
                            "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn),
                            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}.items():
            tensors[p + name + ".weight"] = tensor(*shape)
    write_safetensors(folder / "model.safetensors", tensors)
    change_config(folder, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, vocab_size=vocab,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=64)


def traces(folder):
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("out.mlpackage"))


def errors_of(done):
    return [line for line in done.stderr.splitlines() if not line.startswith("pome: warning: ")]


def refused(pome, source, tmp_path, *parts, options=(), out=None):
    """One line of error that has the parts; nothing is left."""
    start = time.monotonic()
    done = pome("convert", source, out or tmp_path / "out.mlpackage", *options)
    assert done.returncode == 1 and done.stdout == "", done
    lines = errors_of(done)
    assert len(lines) == 1 and lines[0].startswith("pome: "), done.stderr
    for part in parts:
        assert part in lines[0], lines[0]
    assert traces(tmp_path) == [] and time.monotonic() - start < 20
    return done.stderr


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def assert_same_files(a, b):
    assert files_of(a) == files_of(b)
    match, mismatch, errors = filecmp.cmpfiles(a, b, files_of(a), shallow=False)
    assert not mismatch and not errors, (mismatch, errors)


# ---- sources ----

@pytest.mark.parametrize("kept", [0, 7, 8, 1000, -70000, -1])
def test_cut_safetensors(pome, checkpoint, tmp_path, kept):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refused(pome, checkpoint, tmp_path, "model.safetensors")


def test_cut_gguf(pome, checkpoint, tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(1)
    w.add_tensor("token_embd.weight", np.ones((64, 32), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    data = path.read_bytes()
    for kept in (4, 20, 70, 150, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:kept])
        refused(pome, path, tmp_path, "GGUF")


@pytest.mark.parametrize("field, value, part", [
    ("shape", [1 << 40, 1 << 40], "elements"),
    ("shape", [-1, 64], "from 0 up"),
    ("shape", [512, 32], "its shape needs"),
    ("shape", [64, 512], "the configuration asks for [512, 64]"),
    ("shape", [32768], "the configuration asks for"),
    ("shape", [8, 64, 64], "axes"),
    ("shape", [0, 64], "its shape needs 0"),
    ("data_offsets", [0, 1 << 62], "download incomplete"),
    ("data_offsets", [65536, 0], "[begin, end]"),
    ("data_offsets", [0.5, 65536.5], "[begin, end]"),
    ("dtype", "F33", '"F33"'),
    ("dtype", "I16", "another tool"),
    ("dtype", None, "no dtype"),
])
def test_lying_header(pome, checkpoint, tmp_path, field, value, part):
    path = checkpoint / "model.safetensors"
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header["lm_head.weight"][field] = value
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n:])
    refused(pome, checkpoint, tmp_path, '"lm_head.weight"' if field != "model" else "", part)


def test_a_vocabulary_of_nothing(pome, checkpoint, tmp_path):
    tensors = read_safetensors(checkpoint / "model.safetensors")
    tensors["model.embed_tokens.weight"] = ("BF16", [0, 64], b"")
    tensors["lm_head.weight"] = ("BF16", [0, 64], b"")
    write_safetensors(checkpoint / "model.safetensors", tensors)
    refused(pome, checkpoint, tmp_path, "model.embed_tokens.weight")


def test_two_tensors_over_the_same_bytes(pome, checkpoint, tmp_path):
    path = checkpoint / "model.safetensors"
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    q = [name for name in header if name.endswith("q_proj.weight")]
    header[q[0]]["data_offsets"] = header[q[1]]["data_offsets"]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n:])
    refused(pome, checkpoint, tmp_path, "overlap", q[0], q[1])


@pytest.mark.parametrize("n_shards, n_missing", [(3, 2), (60, 59)])
def test_missing_shards_are_all_named(pome, checkpoint, tmp_path, n_shards, n_missing):
    tensors = read_safetensors(checkpoint / "model.safetensors")
    names = list(tensors)
    index = {}
    files = [f"model-{i:05}-of-{n_shards:05}.safetensors" for i in range(1, n_shards + 1)]
    for i, file in enumerate(files):
        part = names[i::n_shards] or [names[0]]
        index |= dict.fromkeys(part, file) if i < len(names) else {f"more.{i}": file}
        if i >= n_missing:
            write_safetensors(checkpoint / file, {name: tensors[name] for name in part})
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    told = refused(pome, checkpoint, tmp_path, f"{n_missing} shards are missing", files[0])
    for file in files[:n_missing]:
        assert file in told
    assert files[-1] not in told


def test_index_that_names_the_wrong_file(pome, checkpoint, tmp_path):
    tensors = read_safetensors(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    names = list(tensors)
    index = {}
    for file, part in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        write_safetensors(checkpoint / file, {name: tensors[name] for name in part})
        index |= dict.fromkeys(part, file)
    text = checkpoint / "model.safetensors.index.json"
    for place, parts in (("b.safetensors", ["in b.safetensors, but it is in a.safetensors"]),
                         ("../b.safetensors", ["in ../b.safetensors, wanted a file in this folder"]),
                         ("/etc/passwd", ["in /etc/passwd, wanted a file in this folder"]),
                         ("", ["does not say in which file"]), (None, ["does not say in which file"])):
        text.write_text(json.dumps({"weight_map": index | {names[2]: place}}))
        refused(pome, checkpoint, tmp_path, "checkpoint: the index ", f'"{names[2]}"', *parts)
    text.write_text(json.dumps({"weight_map": index}))
    assert pome("convert", checkpoint, tmp_path / "out.mlpackage", "--no-check").returncode == 0


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"weight_map": {"a": 5}}', '{"weight_map": {"a": "../../etc/passwd"}}'])
def test_damaged_json(pome, checkpoint, tmp_path, name, text):
    (checkpoint / name).write_text(text)
    refused(pome, checkpoint, tmp_path, "checkpoint")


def test_what_is_not_there_and_what_is_no_file(pome, checkpoint, tmp_path):
    refused(pome, tmp_path / "nowhere", tmp_path, "nowhere", "o such file")
    os.mkfifo(tmp_path / "fifo.gguf")
    refused(pome, tmp_path / "fifo.gguf", tmp_path, "fifo.gguf", "not a regular file")
    (checkpoint / "model.safetensors").unlink()
    refused(pome, checkpoint, tmp_path, "neither model.safetensors nor")
    os.mkfifo(checkpoint / "model.safetensors")
    refused(pome, checkpoint, tmp_path, "not a regular file")
    (checkpoint / "config.json").unlink()
    refused(pome, checkpoint, tmp_path, "config.json")


def test_a_tokenizer_that_cannot_be_used_is_told(pome, checkpoint, tmp_path):
    (checkpoint / "tokenizer.json").write_text("{}")
    done = pome("convert", checkpoint, tmp_path / "out.mlpackage")
    assert done.returncode == 0 and "warning: " in done.stderr and "tokenizer.json" in done.stderr, done.stderr


# ---- rights ----

@pytest.fixture
def as_nobody(tmp_path):
    """Runs the command as a user without rights: [POME, ...] -> CompletedProcess."""
    if os.geteuid() != 0:
        def run(*args, **more):
            return subprocess.run([POME, *map(str, args)], capture_output=True, text=True, timeout=120, cwd=tmp_path, **more)
        return run
    public = pathlib.Path("/tmp") / f"pome-test-{os.getpid()}-{random.randrange(1 << 30)}"
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed")
    public.mkdir(mode=0o755)
    shutil.copy(POME, public / "pome")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o005 == 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)

    def run(*args, **more):
        return subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", public / "pome",
                               *map(str, args)], capture_output=True, text=True, timeout=120, cwd=tmp_path, **more)
    yield run
    shutil.rmtree(public)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", ""])
def test_unreadable_sources(as_nobody, checkpoint, tmp_path, name):
    out = tmp_path / "results"
    out.mkdir()
    out.chmod(0o777)
    (checkpoint / name).chmod(0)
    done = as_nobody("convert", checkpoint, out / "out.mlpackage")
    (checkpoint / name).chmod(0o755)
    assert done.returncode == 1 and "ermission denied" in done.stderr and (name or "checkpoint") in done.stderr, done.stderr
    assert len(errors_of(done)) == 1 and traces(out) == []


def test_unreadable_gguf(as_nobody, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "model.gguf").chmod(0)
    done = as_nobody("convert", tmp_path / "model.gguf", tmp_path / "out.mlpackage")
    assert done.returncode == 1 and "model.gguf" in done.stderr and "ermission denied" in done.stderr, done.stderr


def test_read_only_folder(as_nobody, checkpoint, tmp_path):
    out = tmp_path / "results"
    out.mkdir()
    out.chmod(0o555)
    done = as_nobody("convert", checkpoint, out / "out.mlpackage")
    assert done.returncode == 1 and "ermission denied" in done.stderr and "out.mlpackage" in done.stderr, done.stderr
    assert len(errors_of(done)) == 1 and traces(out) == []


# ---- outputs ----

def test_folder_of_the_output_missing_or_a_file(pome, checkpoint, tmp_path):
    refused(pome, checkpoint, tmp_path, "no such folder", "a/b", out=tmp_path / "a" / "b" / "out.mlpackage")
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    refused(pome, checkpoint, tmp_path, "no such folder", "file", out=tmp_path / "file" / "out.mlpackage")
    refused(pome, checkpoint, tmp_path, ".mlpackage", out=tmp_path / "out.package")


def test_existing_output(pome, checkpoint, tmp_path):
    out = tmp_path / "out.mlpackage"
    assert pome("convert", checkpoint, out, "--no-check").returncode == 0
    (out / "mine").write_text("mine")
    before = (out / "Data/com.apple.CoreML/weights/weight.bin").read_bytes()
    done = pome("convert", checkpoint, out, "--quantize", "none")
    assert done.returncode == 1 and "exists" in done.stderr and "--force" in done.stderr
    assert (out / "mine").exists() and (out / "Data/com.apple.CoreML/weights/weight.bin").read_bytes() == before
    (checkpoint / "model.safetensors").rename(checkpoint / "away")
    assert pome("convert", checkpoint, out, "--force").returncode == 1 and (out / "mine").exists()  # a failure replaces nothing
    (checkpoint / "away").rename(checkpoint / "model.safetensors")
    assert pome("convert", checkpoint, out, "--quantize", "none", "--force").returncode == 0
    assert not (out / "mine").exists() and (out / "Data/com.apple.CoreML/weights/weight.bin").read_bytes() != before
    assert traces(tmp_path) == ["out.mlpackage"]


def test_force_replaces_no_documents(pome, checkpoint, tmp_path):
    """Neither the source, nor what holds it, nor a folder that is no package."""
    packed = shutil.copytree(checkpoint, tmp_path / "source.mlpackage")
    partial = shutil.copytree(checkpoint, tmp_path / "x.mlpackage.partial")
    documents = tmp_path / "documents"
    (documents / "letters").mkdir(parents=True)
    (tmp_path / "documents.mlpackage" / "letters").mkdir(parents=True)
    before = files_of(tmp_path)
    for source, out, options, part in (
            (checkpoint, checkpoint, ["--chunks", "2"], "would remove the source"),
            (checkpoint, tmp_path, ["--chunks", "2"], "would remove the source"),
            (packed, packed, [], "would remove the source"),
            (partial, tmp_path / "x.mlpackage", [], "would remove the source"),
            (checkpoint, documents, ["--chunks", "2"], "other things than a set of packages"),
            (checkpoint, tmp_path / "documents.mlpackage", [], "other things than a package")):
        done = pome("convert", source, out, "--force", "--no-check", *options)
        assert done.returncode == 1 and part in done.stderr, (out, done)
        assert files_of(tmp_path) == before and (documents / "letters").is_dir()
        assert (tmp_path / "documents.mlpackage/letters").is_dir()
    for _ in range(2):  # an empty folder, then a set
        (tmp_path / "set").mkdir(exist_ok=True)
        assert pome("convert", checkpoint, tmp_path / "set", "--force", "--no-check", "--chunks", "2").returncode == 0


@pytest.mark.parametrize("options", [[], ["--force"], ["--resume"]], ids=lambda o: "".join(o) or "plain")
def test_a_foreign_work_folder_is_kept(pome, checkpoint, tmp_path, golden, options):
    """Documents, a package, a file or a link that happens to be called as the work folder."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter").write_text("dear")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "progress").write_text("more than half of the work is done")
    for out, more in (("out.mlpackage", []), ("set", ["--chunks", "2"])):
        work = tmp_path / (out + ".partial")
        for make in (lambda: shutil.copytree(tmp_path / "letters", work), lambda: shutil.copytree(tmp_path / "notes", work),
                     lambda: shutil.copytree(golden / "apple" / "int4-block32.mlpackage", work),
                     lambda: work.write_text("a file"), lambda: work.symlink_to(tmp_path / "letters")):
            make()
            before = files_of(tmp_path)
            done = pome("convert", checkpoint, tmp_path / out, "--no-check", *more, *options)
            assert done.returncode == 1 and f"{work} is in the way" in done.stderr, done
            assert files_of(tmp_path) == before and not (tmp_path / out).exists()
            shutil.rmtree(work) if work.is_dir() and not work.is_symlink() else work.unlink()
        assert pome("convert", checkpoint, tmp_path / out, "--no-check", *more, *options).returncode == 0


def test_two_conversions_to_one_place(pome, checkpoint, tmp_path):
    """The second is refused while the first holds the work folder."""
    for work, out, options in (("out.mlpackage.partial", "out.mlpackage", []), ("set.partial", "set", ["--chunks", "2"])):
        (tmp_path / work).mkdir()
        fd = os.open(tmp_path / work, os.O_RDONLY)  # empty: just made
        fcntl.flock(fd, fcntl.LOCK_EX)
        for resume in ([], ["--resume"]):
            done = pome("convert", checkpoint, tmp_path / out, "--no-check", *options, *resume)
            assert done.returncode == 1 and "another conversion is writing" in done.stderr, done
            assert (tmp_path / work).is_dir() and not (tmp_path / out).exists()
        os.close(fd)
        assert pome("convert", checkpoint, tmp_path / out, "--no-check", *options).returncode == 0


def test_conversions_that_replace_each_other(checkpoint, tmp_path, environment):
    """Each one makes a whole package or is refused for the other."""
    out = tmp_path / "out.mlpackage"
    for _ in range(12):
        both = [subprocess.Popen([POME, "convert", checkpoint, out, "--no-check", "--quiet", "--force"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
        for process in both:
            error = process.communicate()[1]
            assert process.returncode == 0 or "another conversion is writing" in error, error
    assert traces(tmp_path) == ["out.mlpackage"]


def test_what_no_package_can_be(pome, checkpoint, tmp_path):
    refused(pome, checkpoint, tmp_path, "lut3", "iOS 16", options=["--target", "iOS16", "--quantize", "lut3"])
    done = pome("convert", checkpoint, tmp_path / "out.mlpackage", "--context", "1")
    assert done.returncode == 2 and "--context" in done.stderr and traces(tmp_path) == []


def test_leftovers_are_not_taken_over(pome, checkpoint, tmp_path):
    """What lies in the work folder, from whatever time, does not get into the package."""
    whole, out = tmp_path / "whole.mlpackage", tmp_path / "out.mlpackage"
    work = tmp_path / "out.mlpackage.partial"
    assert pome("convert", checkpoint, whole, "--no-check").returncode == 0
    for options in ([], ["--resume"]):
        shutil.copytree(whole, work)
        (work / "tokenizer.json.Xa91kq").write_text("half of a tokenizer")
        (work / "Data/com.apple.CoreML/model.mlmodel.0aB2").write_text("half of a model")
        (work / "progress").write_bytes(struct.pack("<QQd", 1, 30, 0))  # of another conversion
        (work / "Data/com.apple.CoreML/weights/weight.bin").write_bytes(b"\xff" * 300_000)
        assert pome("convert", checkpoint, out, "--no-check", *options).returncode == 0
        assert_same_files(whole, out)
        assert traces(tmp_path) == ["out.mlpackage"]
        shutil.rmtree(out)


# ---- space and memory ----

@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of this many bytes, where mounting is permitted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "tmpfs", folder], capture_output=True)
    if done.returncode != 0:
        pytest.skip("mounting is not permitted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_free_space_is_checked_first(pome, checkpoint, tmp_path):
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        done = pome("convert", checkpoint, disk / "out.mlpackage")
        assert done.returncode == 1 and "MB are free" in done.stderr and "disk" in done.stderr, done.stderr
        assert list(disk.iterdir()) == []


def test_disk_that_fills_up_meanwhile(checkpoint, tmp_path, environment):
    make_large(checkpoint)
    vocabulary = checkpoint / "tokenizer.json"
    vocabulary.write_text(vocabulary.read_text() + " " * (60 << 20))  # more than the reserve
    with small_disk(tmp_path / "disk", 48 << 20) as disk:
        done = subprocess.run([POME, "convert", checkpoint, disk / "out.mlpackage"], text=True, capture_output=True, env=environment)
        assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
        assert list(disk.iterdir()) == []


def test_limit_on_file_sizes(pome, checkpoint, tmp_path):
    """The disk that is full where no file system can be mounted: the weight file cannot grow."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    out = tmp_path / "out.mlpackage"
    done = pome("convert", checkpoint, out, preexec_fn=limit)
    assert done.returncode == 1 and "weight.bin" in done.stderr and "too large" in done.stderr, done.stderr
    assert traces(tmp_path) == []


def test_report_that_cannot_be_written(pome, checkpoint, tmp_path):
    with open("/dev/full", "w") as full:
        done = pome("convert", checkpoint, tmp_path / "out.mlpackage", stdout=full)
    assert done.returncode == 1 and "standard output" in done.stderr
    assert traces(tmp_path) == ["out.mlpackage"]  # the package itself is whole


def test_limit_on_memory(pome, checkpoint, tmp_path):
    """From too little to map the file up to enough: an error that says so, or a whole package."""
    make_large(checkpoint)
    results = set()
    for megabytes in (20, 30, 40, 60, 80, 120, 200, 400, 1500):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
        shutil.rmtree(tmp_path / "out.mlpackage", ignore_errors=True)
        done = pome("convert", checkpoint, tmp_path / "out.mlpackage", "--no-check", preexec_fn=limit)
        if "error while loading shared libraries" in done.stderr:
            continue
        results.add(done.returncode)
        assert done.returncode in (0, 1), (megabytes, done)
        if done.returncode == 1:
            assert "emory" in done.stderr or "cannot map" in done.stderr, (megabytes, done.stderr)
        assert traces(tmp_path) == ["out.mlpackage"] * (done.returncode == 0)
    assert results == {0, 1}


# ---- interruption ----

SLOWLY = ["--no-check", "--quiet", "--quantize-search", "mse"]


def start(checkpoint, out, environment, *options):
    return subprocess.Popen([POME, "convert", checkpoint, out, *SLOWLY, *options], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, env=environment)


def jobs_done(work):
    """What the journal says, or 0."""
    try:
        return struct.unpack_from("<QQ", (work / "progress").read_bytes())[1]
    except (OSError, struct.error):
        return 0


def test_kill_at_random_moments(checkpoint, tmp_path, environment):
    make_large(checkpoint)
    whole, out, work = tmp_path / "whole.mlpackage", tmp_path / "out.mlpackage", tmp_path / "out.mlpackage.partial"
    begin = time.monotonic()
    assert start(checkpoint, whole, environment).wait() == 0
    seconds = time.monotonic() - begin
    rng = random.Random()
    n_killed, done_before = 0, 0
    for _ in range(200):
        if out.exists():
            shutil.rmtree(out)  # from the beginning
            done_before = 0
        process = start(checkpoint, out, environment, "--resume")
        time.sleep(rng.random() * seconds / 3)
        process.kill()
        killed = process.wait() == -signal.SIGKILL
        process.stderr.close()
        n_killed += killed
        if killed and work.exists() and not out.exists():
            assert jobs_done(work) >= done_before  # nothing is begun again
            done_before = jobs_done(work)
        if n_killed == 10:
            break
    assert n_killed == 10
    if not out.exists():
        process = start(checkpoint, out, environment, "--resume")
        assert process.wait() == 0, process.stderr.read()
    assert_same_files(whole, out)
    assert traces(tmp_path) == ["out.mlpackage"]


def wait_for_jobs(process, work, n):
    for _ in range(3000):
        if jobs_done(work) >= n:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.001)
    pytest.fail("no progress")


def test_finished_tensors_are_not_done_again(checkpoint, tmp_path, environment):
    """A byte changed in a finished tensor is still changed at the end."""
    make_large(checkpoint)
    whole, out, work = tmp_path / "whole.mlpackage", tmp_path / "out.mlpackage", tmp_path / "out.mlpackage.partial"
    weights = "Data/com.apple.CoreML/weights/weight.bin"
    assert start(checkpoint, whole, environment).wait() == 0
    process = start(checkpoint, out, environment)
    wait_for_jobs(process, work, 12)
    process.kill()
    process.wait()
    assert not out.exists() and traces(tmp_path) == ["out.mlpackage.partial"]
    first = 192  # payload of the first record
    with open(work / weights, "r+b") as f:
        f.seek(first)
        byte = f.read(1)[0] ^ 0xFF
        f.seek(first)
        f.write(bytes([byte]))
    process = start(checkpoint, out, environment, "--resume")
    assert process.wait() == 0
    got, want = bytearray((out / weights).read_bytes()), (whole / weights).read_bytes()
    assert got != want
    got[first] ^= 0xFF
    assert got == want


@pytest.mark.parametrize("change", ["option", "source", "other"])
def test_resume_of_something_else_begins_anew(checkpoint, tmp_path, environment, change):
    make_large(checkpoint, layers=4)
    whole, out, work = tmp_path / "whole.mlpackage", tmp_path / "out.mlpackage", tmp_path / "out.mlpackage.partial"
    process = start(checkpoint, out, environment)
    wait_for_jobs(process, work, 3)
    process.kill()
    process.wait()
    options = []
    if change == "option":
        options = ["--quantize", "int8"]
    else:
        tensors = read_safetensors(checkpoint / "model.safetensors")
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, shape, data[2:] + data[:2])
        replaced = tmp_path / "replaced"
        write_safetensors(replaced, tensors)
        if change == "source":
            (checkpoint / "model.safetensors").write_bytes(replaced.read_bytes())  # in place: the folder stays the same
        else:
            replaced.rename(checkpoint / "model.safetensors")
    assert start(checkpoint, whole, environment, *options).wait() == 0
    assert start(checkpoint, out, environment, "--resume", *options).wait() == 0
    assert_same_files(whole, out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_cleanly(checkpoint, tmp_path, environment, number):
    make_large(checkpoint)
    whole, out, work = tmp_path / "whole.mlpackage", tmp_path / "out.mlpackage", tmp_path / "out.mlpackage.partial"
    assert start(checkpoint, whole, environment).wait() == 0
    process = subprocess.Popen([POME, "convert", checkpoint, out, *(o for o in SLOWLY if o != "--quiet")], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    wait_for_jobs(process, work, 5)
    process.send_signal(number)
    begin = time.monotonic()
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - begin < 5
    assert process.returncode == 130 and stdout == "" and stderr == "pome: stopped; --resume goes on from here\n"
    assert traces(tmp_path) == ["out.mlpackage.partial"] and jobs_done(work) >= 5
    assert start(checkpoint, out, environment, "--resume").wait() == 0
    assert_same_files(whole, out)
