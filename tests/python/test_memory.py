"""Memory stays constant however long a session lives and however many there are."""
import numpy as np

from pome_api import Model, Session


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def decode(session, n, seed):
    ids = np.random.default_rng(seed).integers(0, 512, n)
    session.clear()
    used = 0
    for i in ids:
        if used == 128:  # the context is full
            session.clear()
            used = 0
        assert np.isfinite(session.append([i])).all()
        used += 1


def test_ten_thousand_decode_steps(golden):
    with Model(golden / "apple/int4-block32.mlpackage", threads=1) as model, Session(model) as session:
        decode(session, 1000, 0)
        before = resident_bytes()
        decode(session, 10000, 1)
        assert resident_bytes() - before < 1 << 20


def test_a_hundred_sessions(golden):
    with Model(golden / "apple/int4-block32.mlpackage", threads=1) as model:
        for i in range(120):
            with Session(model) as session:
                decode(session, 20, i)
            if i == 19:
                before = resident_bytes()
        assert resident_bytes() - before < 1 << 20


def test_models_opened_again_and_again(golden):
    for i in range(60):
        with Model(golden / "apple/layer1-lut4-vector2.mlpackage", threads=2) as model, Session(model) as session:
            decode(session, 3, i)
        if i == 9:
            before = resident_bytes()
    assert resident_bytes() - before < 1 << 20
