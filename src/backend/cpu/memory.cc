#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dispatch.h"

namespace tandem::backend {

namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kPieceElements = 1 << 16;

template <class To, class From>
void convert(To* to, const From* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<To>(static_cast<Wide<To>>(from[i]));
  }
}

// A view with its contiguous elements as one row, so that pieces are cut the same way for any shape.
template <bool kConst>
BasicView<kConst> flat(const BasicView<kConst>& view) {
  return view.contiguous() ? view.reshape(1, view.size()) : view;
}

// Calls body(row, first column, columns) for pieces of about kPieceElements elements.
template <class Body>
void for_pieces(const Threads& threads, const View& view, const Body& body) {
  if (view.rows == 0 || view.cols == 0) {
    return;
  }
  const int64_t pieces = (view.cols + kPieceElements - 1) / kPieceElements;
  const int64_t rows_together = std::max<int64_t>(1, kPieceElements / view.cols);
  const int64_t groups = (view.rows + rows_together - 1) / rows_together;
  threads.parallel_for(groups * pieces, [&](int64_t i) {
    const int64_t begin = i % pieces * kPieceElements;
    const int64_t first = i / pieces * rows_together;
    for (int64_t row = first; row < std::min(view.rows, first + rows_together); ++row) {
      body(row, begin, std::min(kPieceElements, view.cols - begin));
    }
  });
}

// The address of an element.
template <bool kConst>
auto* address(const BasicView<kConst>& view, int64_t row, int64_t col) {
  using Byte = typename BasicView<kConst>::template Element<std::byte>;
  return static_cast<Byte*>(view.data) + (row * view.stride + col) * static_cast<int64_t>(size_of(view.dtype));
}

}  // namespace

Backend::MemorySizes CpuBackend::memory_sizes() const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return {.free = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
          .total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page};
}

Buffer CpuBackend::allocate(size_t bytes) {
  const size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  require(rounded >= bytes, "cannot allocate {} bytes", bytes);
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    throw OutOfMemory(fmt::format("out of memory: cannot allocate {} bytes; use a smaller batch", bytes));
  }
  return Buffer(data, bytes, Memory::host, [](void* p) { std::free(p); });
}

void CpuBackend::upload(const View& to, const void* from) {
  if (to.bytes() > 0) {
    std::memcpy(to.data, from, to.bytes());
  }
}

void CpuBackend::download(void* to, const ConstView& from) {
  if (from.bytes() > 0) {
    std::memcpy(to, from.data, from.bytes());
  }
}

void op::Copy::run(CpuBackend& cpu) const {
  const bool whole = to.contiguous() && from.contiguous();
  const View target = whole ? flat(to) : to;
  const ConstView source = whole ? flat(from) : from;
  if (to.dtype == from.dtype) {
    for_pieces(cpu.threads(), target, [&](int64_t row, int64_t begin, int64_t count) {
      std::memcpy(address(target, row, begin), address(source, row, begin),
                  static_cast<size_t>(count) * size_of(to.dtype));
    });
    return;
  }
  dispatch(to.dtype, [&]<class To>() {
    dispatch(from.dtype, [&]<class From>() {
      for_pieces(cpu.threads(), target, [&](int64_t row, int64_t begin, int64_t count) {
        convert(target.host<To>() + row * target.stride + begin, source.host<From>() + row * source.stride + begin,
                count);
      });
    });
  });
}

void op::FillZero::run(CpuBackend& cpu) const {
  const View target = flat(to);
  for_pieces(cpu.threads(), target, [&](int64_t row, int64_t begin, int64_t count) {
    std::memset(address(target, row, begin), 0, static_cast<size_t>(count) * size_of(to.dtype));
  });
}

}  // namespace tandem::backend
