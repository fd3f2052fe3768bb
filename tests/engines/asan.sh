#!/usr/bin/env bash
# Builds the C++ engine with AddressSanitizer and UndefinedBehaviorSanitizer, and runs its edge cases
# on the instruction sets named, or on all that this machine has.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
python=$(realpath --no-symlinks "$(command -v "${PYTHON:-python3}")")
build=${ASAN_BUILD:-$root/build/asan}

cmake -S "$root" -B "$build" -DLIMELIGHT_SANITIZE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$build" --parallel

# Python itself leaks at exit by design; the sanitizer must be the first library of the process.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
export PYTHONPATH="$root/src:$root"
preload=$(${CXX:-c++} -print-file-name=libasan.so)
LD_PRELOAD="$preload" "$python" "$root/tests/engines/edges.py" "$build"/_native*.so "$@"
