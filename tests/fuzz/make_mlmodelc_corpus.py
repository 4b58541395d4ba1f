#!/usr/bin/env python3
"""Makes the seeds and dictionaries of fuzz_mil_text and fuzz_mlmodelc.

    POME=build/release/cli/pome python tests/fuzz/make_mlmodelc_corpus.py

The texts are small programs in the spelling of compilers and what `pome compile` makes of the small packages in tests/golden."""
import os
import pathlib
import re
import struct
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
POME = os.environ.get("POME", str(HERE.parent.parent / "build/release/cli/pome"))
TEXTS, FOLDERS = HERE / "corpus" / "mil_text", HERE / "corpus" / "mlmodelc"
BLOB = 'BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(%d))'


def flexible(name, shape, part, value, long=False):
    s = "tensor<string, []>" if long else "string"
    kind = {"RangeDims": f"dict<{s}, list<tensor<int32, [2]>, ?>>", "EnumeratedShapes": f"dict<{s}, dict<{s}, tensor<int32, [?]>>>"}[part]
    return (f"[FlexibleShapeInformation = tuple<tuple<{s}, dict<{s}, tensor<int32, [?]>>>, tuple<{s}, {kind}>>"
            f'((("DefaultShapes", {{{{"{name}", {shape}}}}}), ("{part}", {value})))]')


def short(body, inputs="tensor<fp32, [2, 3]> x", outputs="y", opset="ios18", attributes=""):
    return f"program(1.3)\n{{\n    func main<{opset}>({inputs}) {attributes}{{\n{body}\n        }} -> ({outputs});\n}}\n"


SMALL = {
    "long": 'program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{"coremlc-version", "3404.23.1"}})]\n{\n'
            "    func main<ios16>(tensor<fp16, [1, ?, ?]> x) "
            + flexible("x", "[1, 1, 1]", "RangeDims", '{{"x", [[1, 1], [1, 64], [1, 64]]}}', long=True) + " {\n"
            '            tensor<int32, [3]> p = const()[name = tensor<string, []>("p"), val = tensor<int32, [3]>([0, 2, 1])];\n'
            '            tensor<fp16, [1, ?, ?]> v = transpose(perm = p, x = x)[name = tensor<string, []>("t")];\n        } -> (v);\n}\n',
    "two": "program(1.3)\n{\n" + "".join(
        f"    func {n}<ios18>(tensor<fp32, [?]> x) " + flexible("x", "[2]", "EnumeratedShapes", '{{"0a", {{"x", [1]}}}, {"0b", {{"x", [2]}}}}')
        + " {\n        tensor<fp32, [?]> y = relu(x = x);\n        } -> (y);\n" for n in ("first", "second")) + "}\n",
    "attributes": short("tensor<fp16, [32]> w = constexpr_affine_dequantize()[axis = int32(0), quantized_data = tensor<int8, [64]>("
                        + BLOB % 448 + "), scale = fp16(0x1p-1), zero_point = int8(-1)];\ntensor<fp16, [64]> y = add(x = x, y = w);",
                        "tensor<fp16, [64]> x", opset="ios17"),
    "states": short("tensor<fp16, [2]> a = read_state(input = s);\ntensor<fp16, [2]> y = add(x = a, y = x);\nwrite_state(data = y, input = s);",
                    "tensor<fp16, [2]> x, state<tensor<fp16, [2]>> s"),
    "blocks": short("int32 z = const()[val = int32(0)];\n"
                    "int32 i, tensor<fp32, [2]> w = while_loop(loop_vars = (z, x))\n"
                    "(int32 j, tensor<fp32, [2]> u) { bool c = less(x = j, y = int32(4)); } -> (c)\n"
                    "(int32 k, tensor<fp32, [2]> t) { int32 n = add(x = k, y = int32(1)); tensor<fp32, [2]> m = mul(x = t, y = fp32(0x1p+1)); "
                    "} -> (n, m);\nbool p = less(x = i, y = int32(2));\n"
                    "tensor<fp32, [2]> y = cond(pred = p)() { tensor<fp32, [2]> a = relu(x = w); } -> (a) () { tensor<fp32, [2]> b = abs(x = w); "
                    "} -> (b);", "tensor<fp32, [2]> x"),
    "literals": short('string s = const()[val = string("a \\"b\\" \\\\ \\n")];\n'
                      "tensor<fp16, [3]> h = const()[val = tensor<fp16, [3]>([inf, -0x1p-24, 0x1.ffcp+15])];\n"
                      "tensor<uint4, [3]> u = const()[val = tensor<uint4, [3]>([1, 15, 0])];\n"
                      "list<string, 2> l = const()[val = list<string, 2>([\"a\", \"b\"])];\n"
                      "tensor<fp32, [2, 2, 3]> y = stack(axis = int32(0), values = (x, tensor<fp32, [2, 3]>([[0x1p+0, -1.5, 2e3], [0x0p+0, nan, -inf]])));"),
    "names": short('fp32 "a b" = const()[val = fp32(0x1p+0)];\ntensor<fp32, [2, 3]> y = add(x = x, y = "a b")[name = string("c d")];'),
}


def compiled(package):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "m.mlmodelc"
        subprocess.run([POME, "compile", GOLDEN / f"{package}.mlpackage", out, "-q"], check=True, stdout=subprocess.DEVNULL)
        return {n: (out / n).read_bytes() for n in ("model.mil", "coremldata.bin", "metadata.json")}


def side_files(split, binary, metadata):
    """split/15 of the input, the first byte aside, is the binary: it is padded to that."""
    if split == 15:
        metadata = b""
    elif split:
        missing = len(metadata) * split - len(binary) * (15 - split)
        if missing > 0:
            binary += bytes((missing + 14 - split) // (15 - split))
        else:
            metadata += b" " * ((-missing + split - 1) // split)
    else:
        binary = b""
    return bytes([split]) + binary + metadata


def text_field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def feature(name, shape, dtype, is_state=False):
    array = b"\x0a" + bytes([len(shape), *shape]) + b"\x10" + dtype
    kind = text_field(8, text_field(1, array)) if is_state else text_field(5, array)
    return text_field(1, name) + text_field(3, kind)


def main():
    for folder in (TEXTS, FOLDERS, HERE / "dictionaries"):
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in SMALL.items():
        (TEXTS / name).write_text(text)
    for package in ("loader/constants", "loader/control_flow", "chunks-lut4-split/tiny-llama_chunk4", "chunks-lut4-split/logit-processor"):
        (TEXTS / package.split("/")[1]).write_bytes(compiled(package)["model.mil"])
    half, whole = b"\x90\x80\x04", b"\xa0\x80\x08"
    described = text_field(1, feature(b"y", [1], whole)) + text_field(1, feature(b"x", [2, 4], half)) + \
        text_field(10, feature(b"a", [2, 4], half)) + text_field(10, feature(b"b", [1], whole)) + \
        text_field(13, feature(b"kv", [2, 4], half, is_state=True))
    header = struct.pack("<II", 502, 5) + bytes(20) + struct.pack("<Q", 7) + b"generic" + struct.pack("<QQQQ", 9, 0, 0, 0)
    binary = header + struct.pack("<Q", len(described)) + described + struct.pack("<QQ", 502, 0)
    metadata = (b'[{"specificationVersion" : 9, "author" : "me", "userDefinedMetadata" : {"k" : "v"}, "defaultFunctionName" : "other",'
                b' "inputSchema" : [{"name" : "y", "isOptional" : "1", "dataType" : "Int32"}], "outputSchema" : [{"name" : "b"}],'
                b' "functions" : [{"name" : "main", "inputSchema" : [{"name" : "y"}, {"name" : "x"}], "stateSchema" : []}]}]')
    for split in (0, 7, 15):
        (FOLDERS / f"own_{split}").write_bytes(side_files(split, binary, metadata))
    files = compiled("loader/control_flow")
    (FOLDERS / "control_flow").write_bytes(side_files(4, files["coremldata.bin"], files["metadata.json"]))
    words = sorted(set(re.findall(r"[A-Za-z_]\w+|->|\*\?", "\n".join(SMALL.values()))))
    words += ["bf16", "fp64", "fp8e4m3fn", "fp8e5m2", "uint1", "uint2", "uint3", "uint6", "int64", "uint64", "CoreML8", "ios15", "ios26"]
    escaped = (w.replace("\\", "\\\\").replace('"', '\\"') for w in words)
    (HERE / "dictionaries" / "mil_text.dict").write_text("".join(f'"{w}"\n' for w in escaped))
    keys = sorted(set(re.findall(rb'"(\w+)"', metadata)))
    tags = [b"\x0a", b"\x52", b"\x6a", b"\xa2\x01", b"\xaa\x01", b"\xa2\x06"]
    (HERE / "dictionaries" / "mlmodelc.dict").write_text(
        "".join(f'"\\"{k.decode()}\\""\n' for k in keys) + "".join('"' + "".join(f"\\x{b:02x}" for b in t) + '"\n' for t in tags))


if __name__ == "__main__":
    main()
