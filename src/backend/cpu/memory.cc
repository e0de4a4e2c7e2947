#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dispatch.h"

namespace tandem {

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
View flat(const View& view) { return view.contiguous() ? view.reshape(1, view.size()) : view; }

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

size_t bytes_of(const View& view) { return static_cast<size_t>(view.size()) * size_of(view.dtype); }

std::byte* address(const View& view, int64_t row, int64_t col) {
  return static_cast<std::byte*>(view.data) + (row * view.stride + col) * static_cast<int64_t>(size_of(view.dtype));
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
    throw OutOfMemory(fmt::format("out of memory: {} bytes wanted; a smaller batch needs less", bytes));
  }
  return Buffer(data, bytes, Memory::host, [](void* p) { std::free(p); });
}

void CpuBackend::upload(const View& to, const void* from) {
  if (const size_t bytes = bytes_of(to); bytes > 0) {
    std::memcpy(to.data, from, bytes);
  }
}

void CpuBackend::download(void* to, const View& from) {
  if (const size_t bytes = bytes_of(from); bytes > 0) {
    std::memcpy(to, from.data, bytes);
  }
}

void CpuBackend::copy(const View& to, const View& from) {
  const bool whole = to.contiguous() && from.contiguous();
  const View target = whole ? flat(to) : to;
  const View source = whole ? flat(from) : from;
  if (to.dtype == from.dtype) {
    for_pieces(threads_, target, [&](int64_t row, int64_t begin, int64_t count) {
      std::memcpy(address(target, row, begin), address(source, row, begin),
                  static_cast<size_t>(count) * size_of(to.dtype));
    });
    return;
  }
  dispatch(to.dtype, [&]<class To>() {
    dispatch(from.dtype, [&]<class From>() {
      for_pieces(threads_, target, [&](int64_t row, int64_t begin, int64_t count) {
        convert(target.host<To>() + row * target.stride + begin, source.host<From>() + row * source.stride + begin,
                count);
      });
    });
  });
}

void CpuBackend::fill_zero(const View& to) {
  const View target = flat(to);
  for_pieces(threads_, target, [&](int64_t row, int64_t begin, int64_t count) {
    std::memset(address(target, row, begin), 0, static_cast<size_t>(count) * size_of(to.dtype));
  });
}

std::unique_ptr<Backend> make_cpu_backend(int threads) { return std::make_unique<CpuBackend>(threads); }

}  // namespace tandem
