"""`pome inspect`: text, JSON with stable keys, program text."""
import json


def test_text(pome, package):
    done = pome("inspect", package)
    assert done.returncode == 0 and done.stderr == ""
    for part in ("inputIds  int32 [1, 1..128]", "keyCache  fp16 [4, 1, 2, 128, 16]", "linear 29", "int4 blockwise_shift_scale",
                 "4.50 bits each", "contract: stateful, 2 states, ids=inputIds", "context 128, vocabulary 512", "co.huggingface.exporters.name = tiny/llama-64x4"):
        assert part in done.stdout, part


def test_json_keys(pome, package):
    model = json.loads(pome("inspect", package, "--json").stdout)
    assert set(model) == {"path", "kind", "specification_version", "description", "version", "author", "license", "default_function",
                          "functions", "weights_bytes", "weights", "metadata"}
    (main,) = model["functions"]
    assert set(main) == {"name", "inputs", "states", "outputs", "ops", "contract"}
    assert main["name"] == model["default_function"] == "main"
    ids, mask = main["inputs"]
    assert ids == {"name": "inputIds", "kind": "tensor", "dtype": "int32", "shape": [1, 1], "ranges": [[1, 1], [1, 128]]}
    assert mask["ranges"] == [[1, 1], [1, 1], [1, 128], [1, 128]]
    assert [s["shape"] for s in main["states"]] == [[4, 1, 2, 128, 16]] * 2
    assert main["ops"]["linear"] == 29 and list(main["ops"].values()) == sorted(main["ops"].values(), reverse=True)
    assert model["specification_version"] == 9
    kinds = {w["kind"]: w for w in model["weights"]}
    assert set(kinds) == {"int4 blockwise_shift_scale", "fp16"}
    int4 = kinds["int4 blockwise_shift_scale"]
    assert int4["bytes"] == int4["elements"] // 2 + int4["elements"] // 32 * 2  # codes and one fp16 scale per 32


def test_enumerated_shapes(pome, golden):
    model = json.loads(pome("inspect", golden / "enumerated" / "stateful-int4.mlpackage", "--json").stdout)
    inputs = {i["name"]: i for i in model["functions"][0]["inputs"]}
    assert sorted(map(tuple, inputs["inputIds"]["enumerated"])) == [(1, 1), (1, 8), (1, 32)]
    assert "position=position" in model["functions"][0]["contract"]


def test_functions(pome, fails, golden):
    package = golden / "multifunction" / "int4-block32.mlpackage"
    model = json.loads(pome("inspect", package, "--json").stdout)
    assert {f["name"] for f in model["functions"]} == {"base", "adapter"} and model["default_function"] == "base"
    one = json.loads(pome("inspect", package, "--json", "--function", "adapter").stdout)
    assert [f["name"] for f in one["functions"]] == ["adapter"]
    fails(1, ["no function 'x'"], "inspect", package, "--function", "x")


def test_no_language_model(pome, golden):
    model = json.loads(pome("inspect", golden / "chunks-lut4-split" / "tiny-llama_chunk4.mlpackage", "--json").stdout)
    assert model["functions"][0]["contract"] is None


def test_program_text(pome, fails, package):
    done = pome("inspect", package, "--mil")
    assert done.returncode == 0
    assert done.stdout.startswith("program(1.3)")
    assert "func main<ios18>(" in done.stdout and "constexpr_blockwise_shift_scale" in done.stdout
    assert "BLOBFILE" in done.stdout
    fails(2, ["--mil is text"], "inspect", package, "--mil", "--json")
