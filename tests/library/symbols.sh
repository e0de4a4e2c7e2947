#!/bin/sh
# symbols.sh LIBTANDEM: the library exports its interface alone, needs no library of training and has no optimizer.
set -eu
fail() {
  echo "$1" >&2
  exit 1
}

exported=$(nm -D --defined-only -C "$1" | cut -d' ' -f3- |
  grep -vE '^tandem::(Translator::(~?Translator|operator=|info|translate|translate_line|score)\(.*|version\(\))$|^(typeinfo|typeinfo name|vtable) for tandem::Error$' || true)
[ -z "$exported" ] || fail "the library exports more than its interface: $exported"
nm -D --defined-only -C "$1" | grep -q 'tandem::Translator::translate(' || fail "the library exports no Translator"

known='dnnl|gomp|sentencepiece|isal|fmt|stdc\+\+|m|gcc_s|c|cublasLt|asan|ubsan'
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "^(lib($known)\.so|ld-linux)" || true)
[ -z "$needed" ] || fail "the library needs more than it should: $needed"

name=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
echo "$name" | grep -qE '^libtandem\.so\.[0-9]+\.[0-9]+$' || fail "the library's name is $name, without a version"

if nm -C "$1" | grep -E ' tandem::(\w+::)?(Adam|Reducer|Communicator|Batcher)::' >&2; then
  fail "the library holds parts of training"
fi
