"""`pome run --interactive` on a terminal of its own, and with lines from a pipe."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import POME


class Terminal:
    def __init__(self, command, environment):
        master, slave = pty.openpty()
        self.master, self.seen = master, ""
        self.child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment, close_fds=True,
                                      start_new_session=True, preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(slave)

    def expect(self, pattern, timeout=30):
        """Waits for the pattern in what was not matched yet; gives the text up to its end."""
        end = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.seen)
            if found:
                text, self.seen = self.seen[: found.end()], self.seen[found.end():]
                return text
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.seen += os.read(self.master, 4096).decode(errors="replace")
                except OSError:
                    pytest.fail(f"ended before {pattern!r}: {self.seen!r}")

    def type(self, text):
        os.write(self.master, text.encode())

    def close(self):
        code = self.child.wait(timeout=30)
        os.close(self.master)
        return code


@pytest.fixture
def terminal(environment, package, tokenizer):
    made = []

    def start(*args):
        command = [POME, "run", str(package), "--interactive", "--tokenizer", str(tokenizer), "--temperature", "0", "--raw", *args]
        made.append(Terminal(command, dict(environment, TERM="xterm")))
        return made[-1]

    yield start
    for t in made:
        if t.child.poll() is None:
            t.child.kill()
            t.child.wait()


def test_answers_and_quits(terminal):
    t = terminal("-n", "5")
    t.expect("> ")
    t.type("The quick\r")
    t.expect(r"\n")
    t.expect("> ")
    t.type("/stats\r")
    assert "decode     5 tokens" in t.expect(r"contract .*\n")
    t.expect("> ")
    t.type("/quit\r")
    assert t.close() == 0


def cpu_ticks(process):
    with open(f"/proc/{process.pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


def test_waiting_takes_no_processor(terminal):
    """All threads sleep at the prompt, before the first answer and after one."""
    t = terminal("-n", "30", "--threads", "4")
    t.expect("> ")
    for _ in range(2):
        time.sleep(0.3)
        begin = cpu_ticks(t.child)
        time.sleep(1)
        assert cpu_ticks(t.child) - begin <= 1  # of 100 that one busy thread would take
        t.type("The quick\r")
        t.expect(r"\n")
        t.expect("> ")
    t.type("/quit\r")
    assert t.close() == 0


def test_unknown_command_and_reset(terminal):
    t = terminal("-n", "2")
    t.expect("> ")
    t.type("/rest\r")
    t.expect("did you mean /reset")
    t.expect("> ")
    t.type("/stats\r")
    t.expect("there was no answer yet")
    t.expect("> ")
    t.type("/reset\r")
    t.expect("the conversation is forgotten")
    t.expect("> ")  # before it the terminal itself would take the next key for the end of an empty line
    t.type("\x04")  # end of input
    assert t.close() == 0


def test_interrupt_at_the_prompt_drops_the_line(terminal):
    t = terminal("-n", "2")
    for _ in range(3):
        t.expect("> ")
        t.type("half a line\x03")
    t.expect("> ")
    t.type("/quit\r")
    assert t.close() == 0


def test_interrupt_stops_the_answer_not_the_program(terminal):
    t = terminal("-n", "100000", "--ignore-eos", "--context", "120")
    t.expect("> ")
    t.type("The quick\r")
    t.expect(r"\n.")
    t.type("\x03")
    t.expect("> ")
    t.type("/quit\r")
    assert t.close() == 0


def full_pipe():
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(ends[1], b"." * 4096)
    os.set_blocking(ends[1], True)
    return ends


@pytest.mark.parametrize("is_chat", [True, False])
def test_interrupt_while_the_answer_waits_for_room(environment, package, tokenizer, is_chat):
    """The write of a part of the answer goes on after the signal; that it was interrupted is no failure of it."""
    drain, full = full_pipe()
    command = [POME, "run", str(package), "--tokenizer", str(tokenizer), "--temperature", "0", "--raw", "-n", "100", "--ignore-eos"]
    child = subprocess.Popen([*command, "--interactive"] if is_chat else [*command, "The quick"], env=environment, text=True,
                             stdin=subprocess.PIPE, stdout=full, stderr=subprocess.PIPE, bufsize=0,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    os.close(full)
    if is_chat:
        child.stdin.write("The quick\n")
    begin = time.monotonic()  # where the kernel does not tell what is waited for, two seconds will do
    while time.monotonic() < begin + 2 and "pipe_write" not in Path(f"/proc/{child.pid}/wchan").read_text():
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    time.sleep(0.1)  # before there is room
    text = b""
    if is_chat:
        child.stdin.write("/quit\n")
    while part := os.read(drain, 65536):
        text += part
    os.close(drain)
    _, told = child.communicate(timeout=30)
    assert "cannot write" not in told
    assert child.returncode == (0 if is_chat else 130)
    assert text.strip(b".")  # what was being written arrived


def test_interrupt_ends_waiting_for_a_piped_line(environment, package, tokenizer):
    command = [POME, "run", str(package), "--tokenizer", str(tokenizer), "--temperature", "0", "--raw", "-n", "4", "--interactive", "--json"]
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    child.stdin.write(b"The quick\n")
    whole = json.loads(child.stdout.readline())
    child.stdin.write(b"half a line")
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.stderr.read(1) == b"\n"  # the half line is thrown away
    child.stdin.write(b"/reset\nThe quick")  # the last one without an end
    child.stdin.close()
    answers = child.stdout.readlines()
    child.stderr.read()
    assert child.wait(timeout=30) == 0
    assert [json.loads(line)["text"] for line in answers] == [whole["text"]]


def test_history(terminal):
    t = terminal("-n", "1")
    t.expect("> ")
    t.type("/stats\r")
    t.expect("there was no answer yet")
    t.expect("> ")
    t.type("\x1b[A\r")  # the line above
    t.expect("there was no answer yet")
    t.expect("> ")
    t.type("/quit\r")
    assert t.close() == 0


def test_lines_from_a_pipe(pome, package, tokenizer):
    args = ["run", package, "--interactive", "--tokenizer", tokenizer, "--temperature", "0", "--raw", "-n", 4]
    done = pome(*args, input="The quick\n\n/reset\nThe quick\n")
    assert done.returncode == 0
    first = done.stdout[: len(done.stdout) // 2]
    assert done.stdout == first * 2 and first.strip()
    answers = [json.loads(line) for line in pome(*args, "--json", input="The quick\nThe quick\n").stdout.splitlines()]
    assert [a["new_tokens"] for a in answers] == [4, 4]


def test_conversation_reuses_what_is_cached(pome, package, tokenizer):
    args = ["run", package, "--interactive", "--tokenizer", tokenizer, "--temperature", "0", "-n", 3, "--json"]
    done = pome(*args, input="hi\nhi\n")
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["reused_tokens"] == 0
    assert second["prompt_tokens"] > first["prompt_tokens"]  # the conversation so far is part of it
    assert second["reused_tokens"] >= first["prompt_tokens"] - 1


def test_a_turn_feeds_only_what_is_new(pome, package, tokenizer):
    args = ["run", package, "--interactive", "--tokenizer", tokenizer, "--temperature", "0", "--numerics", "exact", "-n", 3, "--json"]
    for more in ([], ["--speculate", 4]):
        done = pome(*args, *more, input="hi\nhi\nho\nhi\n")
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        cached = [a["prompt_tokens"] + a["new_tokens"] - 1 for a in answers]  # the last new token is picked, not fed
        reused = [a["reused_tokens"] for a in answers[1:]]
        assert len(reused) == 3
        for n, before, has in zip(reused, answers, cached):
            assert before["prompt_tokens"] <= n <= has
        assert reused[1:] == cached[1:3]  # the first answer holds a special token, whose text is not shown


def test_full_context_goes_on(pome, package, tokenizer):
    args = ["run", package, "--interactive", "--tokenizer", tokenizer, "--temperature", "0", "--raw", "-n", 1]
    done = pome(*args, input="x " * 300 + "\nhello\n")
    assert done.returncode == 0
    assert "the context holds 128" in done.stderr and "/reset" in done.stderr
    assert done.stdout.strip() != ""
