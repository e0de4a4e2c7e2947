#include "backend/checked/checked_backend.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <vector>

namespace tandem::backend {

namespace {

// Unlike empty(), this is also true for memory without elements.
bool has_no_elements(const ConstView& view) { return view.rows == 0 || view.cols == 0; }

// Highest ratio of the difference's norm to the expected values' norm: what one or two roundings to bf16 and another
// order of additions explain. f32 results (parameter gradients, statistics) come from the same bf16 operands, so
// kSummed holds for them unless the op has kOfRounded.
constexpr double kRounded = 1.2e-2, kSummed = 2e-3;

size_t span_of(const ConstView& view) {  // elements from the first to the last
  return has_no_elements(view) ? 0 : static_cast<size_t>((view.rows - 1) * view.stride + view.cols);
}

double element(const ConstView& view, size_t i) {
  switch (view.dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<const float*>(view.data)[i]);
    case DType::bf16:
      return static_cast<double>(static_cast<float>(static_cast<const bf16*>(view.data)[i]));
    case DType::f64:
      return static_cast<const double*>(view.data)[i];
    case DType::i32:
      return static_cast<double>(static_cast<const int32_t*>(view.data)[i]);
  }
  return 0;
}

// Fails if `actual` differs from `expected`; both lie in host memory and have the same shape and stride.
void compare(const char* op, int output, const ConstView& actual, const ConstView& expected, double tolerance) {
  double difference = 0, norm = 0, worst = 0;
  int64_t worst_row = 0, worst_col = 0;
  for (int64_t row = 0; row < actual.rows; ++row) {
    for (int64_t col = 0; col < actual.cols; ++col) {
      const auto i = static_cast<size_t>(row * actual.stride + col);
      const double a = element(actual, i), e = element(expected, i);
      const bool same = a == e || (std::isnan(a) && std::isnan(e));  // also infinities
      const double d = same ? 0 : std::abs(a - e);
      difference += d * d;
      norm += std::isfinite(e) ? e * e : 0;
      if (!(d <= worst)) {
        worst = d;
        worst_row = row;
        worst_col = col;
      }
    }
  }
  const double bound = tolerance * std::sqrt(norm);
  require(std::sqrt(difference) <= bound,
          "the device's result differs from the CPU's: output {} of {} [{}x{}] differs by {:.3g} of {:.3g} (norms), "
          "most at row {}, column {}: {:.6g} instead of {:.6g}",
          output, op, actual.rows, actual.cols, std::sqrt(difference), std::sqrt(norm), worst_row, worst_col,
          element(actual, static_cast<size_t>(worst_row * actual.stride + worst_col)),
          element(expected, static_cast<size_t>(worst_row * actual.stride + worst_col)));
}

// The elements from the first to the last, as one row.
ConstView flat(const ConstView& view) {
  const auto count = static_cast<int64_t>(span_of(view));
  return {view.data, 1, count, count, view.dtype, view.memory};
}

// Host copies of what an op, or a part of one, reads and writes on the device: one copy per address, so that views
// that share memory on the device share it here, too.
class Twin {
 public:
  template <class Op>
  Twin(const Op& op, Backend& device) {
    note(op);
    for (const auto& [place, whole] : found_) {
      copies_[place].resize(whole.bytes());
      device.download(copies_[place].data(), whole);
    }
  }

  // Redirects a view, a pointer or all members that an op lists to the copies.
  template <bool kConst>
  void move(BasicView<kConst>& view) {
    view.data = view.empty() ? nullptr : has_no_elements(view) ? &nothing_ : copies_.at(view.data).data();
    view.memory = Memory::host;
  }
  template <class T>
  void move(T*& value) {
    value = value == nullptr ? nullptr : reinterpret_cast<T*>(copies_.at(value).data());
  }
  template <class T>
  void move(std::span<const T>& list) {
    auto& moved = lists_.emplace_back(list.begin(), list.end());
    std::for_each(moved.begin(), moved.end(), [this](T& one) { move(one); });
    list = moved;
  }
  template <class Op>
  requires requires { Op::inputs; }
  void move(Op& op) {
    const auto move_member = [this](auto& member) { move(member); };
    op::for_each_member(Op::outputs, op, move_member);
    op::for_each_member(Op::inputs, op, move_member);
    if constexpr (requires { Op::scratch; }) {
      op::for_each_member(Op::scratch, op, move_member);
    }
    if constexpr (requires { Op::device_own; }) {
      op::for_each_member(Op::device_own, op, [](auto& member) { member = {}; });
    }
  }

 private:
  void note(const ConstView& view) {
    if (!view.empty() && !has_no_elements(view)) {
      ConstView& whole = found_[view.data];
      whole = flat(view).bytes() > whole.bytes() ? flat(view) : whole;
    }
  }
  template <class T>
  void note(T* const& value) {
    static_assert(sizeof(T) % 4 == 0);
    note(ConstView{value, 1, sizeof(T) / 4, sizeof(T) / 4, DType::i32, Memory::device});
  }
  template <class T>
  void note(const std::span<const T>& list) {
    std::for_each(list.begin(), list.end(), [this](const T& one) { note(one); });
  }
  template <class Op>
  requires requires { Op::inputs; }
  void note(const Op& op) {
    const auto note_member = [this](const auto& member) { note(member); };
    op::for_each_member(Op::outputs, op, note_member);
    op::for_each_member(Op::inputs, op, note_member);
    if constexpr (requires { Op::scratch; }) {
      op::for_each_member(Op::scratch, op, note_member);
    }
  }

  std::map<const void*, ConstView> found_;  // the largest view at each address
  std::map<const void*, std::vector<std::byte>> copies_;
  std::deque<std::vector<WeightGradient>> lists_;
  std::byte nothing_{};
};

// The part of an output that is compared.
const View& compared(const View& view) { return view; }
View compared(LossTotals* totals) {
  return make_view(totals, DType::f64, 1, sizeof(LossTotals) / sizeof(double), Memory::device);
}
View compared(UpdateState* update) { return make_view(update, DType::f64, 1, 1, Memory::device); }  // its norm

// Calls body(view) for each output of an op or of a list in it, or for a single output.
template <class Output, class Body>
void for_outputs(const Output& output, const Body& body) {
  if constexpr (requires { Output::outputs; }) {
    op::for_each_member(Output::outputs, output, [&](const auto& member) { for_outputs(member, body); });
  } else if constexpr (requires { output.begin(); }) {
    std::for_each(output.begin(), output.end(), [&](const auto& one) { for_outputs(one, body); });
  } else {
    body(compared(output));
  }
}

}  // namespace

CheckedBackend::CheckedBackend(std::unique_ptr<Backend> device, int threads)
    : ForwardingBackend(*device), device_(std::move(device)), cpu_(make_cpu_backend(threads)) {}

void CheckedBackend::run(const op::Any& op) {
  if (!checking_) {
    inner_.run(op);
    return;
  }
  std::visit([this](const auto& one) { check(one); }, op);
}

template <class Op>
void CheckedBackend::check(const Op& op) {
  if constexpr (std::tuple_size_v<decltype(Op::outputs)> == 0) {
    inner_.run(op);
    return;
  }
  Twin twin(op, inner_);  // made before the device overwrites what the op reads
  Op same = op;
  twin.move(same);
  cpu_->run(same);
  inner_.run(op);
  int number = 0;
  for_outputs(op, [&](const View& output) {
    ++number;
    if (has_no_elements(output)) {
      return;
    }
    std::vector<std::byte> memory(flat(output).bytes());
    inner_.download(memory.data(), flat(output));
    View actual = output, expected = output;
    actual.data = memory.data();
    actual.memory = Memory::host;
    twin.move(expected);
    const bool rounded = output.dtype == DType::bf16 || (output.dtype == DType::f32 && requires { Op::kOfRounded; });
    const bool exact = output.dtype == DType::i32;
    compare(Op::kName, number, actual, expected, rounded ? kRounded : exact ? 0 : kSummed);
  });
  ++ops_checked_;
}

}  // namespace tandem::backend
