"""python -m pome.coremltools [-m MODULE | SCRIPT] [ARGUMENT ...]: runs a program with the engine behind coremltools."""
import os
import runpy
import sys


def main() -> int:
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] == "-m":
        if len(arguments) < 2:
            print("-m wants the name of a module", file=sys.stderr)
            return 2
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        if not os.path.exists(arguments[0]):
            print(f"{arguments[0]}: no such file", file=sys.stderr)
            return 2
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.realpath(arguments[0]))  # through links, as Python itself
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    import pome.coremltools  # noqa: F401

    sys.exit(main())
