#!/bin/sh
# example.sh BUILD SOURCE WORK COMPILER FLAGS TANDEM: installs the library into an empty prefix, builds examples/ against
# it and runs that on a trained model; its translations are the program's.
set -eu
build=$1 source=$2 work=$3 compiler=$4 flags=$5 models=$6
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" --component library >"$work/install.log"
cp -r "$source/examples" "$work/source"  # away from the headers of the tree
cmake -G Ninja -S "$work/source" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS="$flags" >"$work/configure.log"
cmake --build "$work/build" >"$work/build.log"
cd /
"$work/build/translate" "$models/a" <"$models/lines.en" >"$work/out"
cut -f1,3 "$work/out" >"$work/own"
awk -F ' \\|\\|\\| ' '{print $1 "\t" $2}' "$models/a.out" | cmp - "$work/own"
if "$work/build/translate" "$work/nothing" </dev/null 2>"$work/error"; then
  echo "a model that is not there was opened" >&2
  exit 1
fi
grep -q "there is no model at $work/nothing" "$work/error"
