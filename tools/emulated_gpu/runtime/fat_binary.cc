#include "emulated_gpu/runtime/fat_binary.h"

#include <boost/iostreams/copy.hpp>
#include <boost/iostreams/device/array.hpp>
#include <boost/iostreams/filter/zstd.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "emulated_gpu/error.h"

namespace emulated {

namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kMagic = 0xba55ed50;
constexpr uint16_t kPtx = 1;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;  // flags: how the text is compressed

struct Wrapper {
  uint32_t magic, version;
  const std::byte* data;
};

struct Header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // behind the header
};

struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;  // behind the header, with what fills up
  uint32_t compressed_bytes, unused1;
  uint16_t minor, major;
  uint32_t architecture;
  uint64_t unused2;
  uint64_t flags;
  uint64_t unused3;
  uint64_t text_bytes;
};

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

std::string text_of(const Entry& entry, const std::byte* data) {
  const auto* const text = reinterpret_cast<const char*>(data);
  if ((entry.flags & (kLz4 | kZstd)) == 0) {
    return {text, entry.bytes};
  }
  require((entry.flags & kZstd) != 0, "the program's PTX is compressed as older versions of nvcc do it");
  namespace io = boost::iostreams;
  io::filtering_istream stream;
  stream.push(io::zstd_decompressor());
  stream.push(io::array_source(text, entry.compressed_bytes));
  std::ostringstream result;
  io::copy(stream, result);
  return result.str();
}

}  // namespace

Ptx ptx_of(const void* registered) {
  const auto wrapper = read<Wrapper>(static_cast<const std::byte*>(registered));
  const auto header = read<Header>(wrapper.data);
  require(wrapper.magic == kWrapperMagic && header.magic == kMagic,
          "the program's GPU code has a form that is not known");
  const std::byte* at = wrapper.data + header.header_bytes;
  for (const std::byte* const end = at + header.bytes; at < end;) {
    const auto entry = read<Entry>(at);
    if (entry.kind == kPtx && (entry.architecture == 80 || entry.architecture == 90)) {
      return {static_cast<int>(entry.architecture), text_of(entry, at + entry.header_bytes)};
    }
    at += entry.header_bytes + entry.bytes;
  }
  fail("the program has no PTX of 8.0 or 9.0 for the emulated GPU; build it with CUDAARCHS=\"90a-real;80-virtual\"");
}

}  // namespace emulated
