// Operands of ops besides views and numbers, and what describes ops. Pointers and views refer to the backend's memory,
// spans to the host's.
//
// A struct that holds views or pointers lists them, as an op does (see backend/ops.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>

#include "core/side.h"
#include "tensor/view.h"

namespace tandem::backend {

constexpr double kNormEpsilon = 1e-6;  // added to a row's variance by every layer norm

// Values that a step's kernels read from memory, written before the step, so that a recorded graph can be replayed.
struct StepState {
  uint64_t seed = 0;
  uint32_t step = 0;          // optimizer step, from 0
  uint32_t first_source = 0;  // index of the micro-batch's first token in the step's global batch, source side
  uint32_t first_target = 0;  // the same on the target side
  float loss_scale = 1;       // multiplies the loss's gradient: 1 / target tokens of the global batch
  float learning_rate = 0;
};

// Dropout whose mask is a function of (seed, step, place in the model, token, column): Philox, eight columns per call,
// keep if a 16-bit lane >= rate * 65536. Kept values are multiplied by 1 / (1 - rate). rate = 0: off.
struct Dropout {
  float rate = 0;
  uint32_t place = 0;                // one number for each dropout of the model; attention uses place + head
  Side side = Side::source;          // selects the state's first-token index
  const StepState* state = nullptr;  // read only if the rate is not 0

  static constexpr auto outputs = std::tuple();
  static constexpr auto inputs = std::tuple(&Dropout::state);
};

// A matrix of the model [rows, cols] as an op reads it. Kernels for plain values call plain(); a kernel for narrower
// values also reads `scales`, and a kernel with a layout of its own may find the values so in `packed`.
struct Weight {
  ConstView values = {};  // C, or a narrower type with scales
  ConstView scales = {};  // empty: the values are used as they are
  ConstView packed = {};  // the same values, laid out for a kernel; or empty

  Weight() = default;
  Weight(const ConstView& plain) : values(plain) {}  // NOLINT(google-explicit-constructor): a plain matrix is a weight
  Weight(const View& plain) : values(plain) {}       // NOLINT(google-explicit-constructor)

  int64_t rows() const { return values.rows; }
  int64_t cols() const { return values.cols; }
  double bytes() const { return static_cast<double>(values.bytes() + scales.bytes()); }
  const ConstView& plain() const {
    require(scales.empty(), "this kernel reads plain weights, not {} with scales", name_of(values.dtype));
    return values;
  }

  static constexpr auto outputs = std::tuple();
  static constexpr auto inputs = std::tuple(&Weight::values, &Weight::scales, &Weight::packed);
};

enum class Activation : uint8_t { none, relu, gelu, swish };  // gelu: the exact one, with erf

// The start of each part of a batch's rows, from 0, and the last one's end. Empty: all rows are one part.
using RowParts = std::span<const int32_t>;

// Sentence i owns the rows starts[i] to starts[i + 1] of its side.
struct AttentionShape {
  int heads = 1;
  bool causal = false;
  ConstView query_starts;  // i32 [1, sentences + 1]
  ConstView key_starts;    // i32 [1, sentences + 1]
  int64_t longest_query = 0;
  int64_t longest_key = 0;
  Dropout dropout = {};  // token = query's index in the global batch, column = key's position in its sentence
  ConstView plan = {};   // i32, PlanAttention's result; or empty

  static constexpr auto outputs = std::tuple();
  static constexpr auto inputs =
      std::tuple(&AttentionShape::query_starts, &AttentionShape::key_starts, &AttentionShape::dropout);
  static constexpr auto device_own = std::tuple(&AttentionShape::plan);
};

// The rows of a batch that hold each token, so that an embedding's gradient can be added up without atomics.
struct TokenOrder {
  ConstView rows;    // i32 [1, tokens]: row numbers, sorted by token id, rows of one id in rising order
  ConstView ids;     // i32 [1, runs]: the distinct ids, rising
  ConstView starts;  // i32 [1, runs + 1]: where each id's rows begin in `rows`

  static constexpr auto outputs = std::tuple();
  static constexpr auto inputs = std::tuple(&TokenOrder::rows, &TokenOrder::ids, &TokenOrder::starts);
};

// Keys and values of one decoding step: row r of the queries attends to length[r] cached rows, which are
// index[r][0..length) or, without an index, first[r], first[r] + 1, ...
struct CachedKeys {
  ConstView keys;        // C [cached, d]
  ConstView values;      // C [cached, d]
  ConstView length;      // i32 [1, rows]
  ConstView first = {};  // i32 [1, rows], or empty
  ConstView index = {};  // i32 [rows, longest], or empty

  static constexpr auto outputs = std::tuple();
  static constexpr auto inputs =
      std::tuple(&CachedKeys::keys, &CachedKeys::values, &CachedKeys::length, &CachedKeys::first, &CachedKeys::index);
};

// The gradients of a matrix and its bias: dw = dy' x, dbias = the column sums of dy, or += .
struct WeightGradient {
  View dw;          // G [out, in]
  View dbias = {};  // G [1, out] or empty
  ConstView dy, x;  // C [rows, out], C [rows, in]

  static constexpr auto outputs = std::tuple(&WeightGradient::dw, &WeightGradient::dbias);
  static constexpr auto inputs = std::tuple(&WeightGradient::dy, &WeightGradient::x);
};

struct AdamSettings {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0;
  bool decoupled = false;  // true: AdamW; false: decay is added to the gradient
};

struct UpdateSettings {
  AdamSettings adam = {};
  float max_norm = 0;       // gradients are scaled down to this norm; 0: no clipping
  float average_decay = 0;  // decay of the weights' moving average
};

// The state of an update: PrepareUpdate writes it, Adam and MovingAverage read it. Only `updates` is
// kept from one update to the next.
struct UpdateState {
  double norm = 0;             // norm of the gradient before clipping
  float clip_factor = 1;       // min(1, max_norm / norm)
  uint32_t finite = 1;         // 0: this update changes nothing and is not counted
  uint32_t updates = 0;        // updates done, this one counted
  float bias_correction1 = 1;  // 1 - beta1^updates
  float bias_correction2 = 1;  // 1 - beta2^updates
  // The average follows faster at the beginning, so that it forgets the initial weights: with t = updates,
  // min(average_decay, (1 + t) / (10 + t)).
  float average_decay = 0;
};

// Sums over target tokens.
struct LossTotals {
  double smoothed = 0;  // label-smoothed cross-entropy, nats
  double nll = 0;       // plain negative log-likelihood, nats
  double correct = 0;   // tokens whose most likely piece is the label
  double tokens = 0;
};

namespace op {

// The least that an op must do.
struct Cost {
  std::string label;        // op, variant and shape, to be printed
  double bytes = 0;         // moved to and from memory
  double flops = 0;         // those of matrix products
  double flops_a_pair = 0;  // attention's, for each query and each key that it sees
};

template <class... Views>
double bytes_of(const Views&... views) {
  return (0.0 + ... + static_cast<double>(views.bytes()));
}

// Flops of y [rows, cols], each element a sum of `terms` products.
inline double flops_of(const ConstView& y, int64_t terms) {
  return 2 * static_cast<double>(y.size()) * static_cast<double>(terms);
}

inline std::string label_of(const char* name, const ConstView& view) {
  return fmt::format("{} {}x{}", name, view.rows, view.cols);
}
inline std::string label_of(const char* name, const ConstView& view, int64_t terms) {
  return fmt::format("{} {}x{}x{}", name, view.rows, view.cols, terms);
}

// Calls f(member) for the members of an op, or of a part of one, that the list names.
template <class Members, class Of, class F>
void for_each_member(const Members& members, Of& of, const F& f) {
  std::apply([&](auto... member) { (f(of.*member), ...); }, members);
}

}  // namespace op
}  // namespace tandem::backend
