// The ops: what a backend computes. An op is a value that names its outputs, its inputs, which it cannot write, and its
// scalars. It is given to a backend as
//
//   backend.run(op::AddRows{.table = table, .ids = ids, .rows = rows});
//
// and computed by op::AddRows::run(CpuBackend&) in backend/cpu/add_rows.cc or run(CudaBackend&) in
// backend/cuda/add_rows.cu. The specification is tests/reference/add_rows.h; a device gives the same numbers, fast.
//
// Contracts that hold for every op:
//  - Gradients are written (=) unless `accumulate` is set; then they are added to (+=). Only EmbedBackward's are always
//    added to.
//  - Matrices are packed: a row is a token, sentences lie one after the other, there is no padding. Rows past the
//    true count (a device may work on a fixed capacity) hold finite numbers and never touch a weight.
//  - The types: activations and compute weights in the compute type C (f32, bf16; f64 in tests); masters, moments,
//    norm parameters and statistics in the master type M (f32; f64 in tests); parameter gradients, which are sums over
//    rows, in G: M, or on a CPU f64; sums of losses in f64; indices in i32.
//  - Same input, same bits: reductions run in an order that is fixed by shape, whatever the number of threads.
//  - Shapes are checked in nn/, once; kernels contain arithmetic only.
//  - A member without a default must be given (a warning is an error).
//
// Each op also lists, for whoever treats all ops alike (backend/checked, backend/profiled, tests):
//  - `outputs` and `inputs`: its members that are views or pointers, or structs or lists that have such members;
//    `scratch`: memory that the op needs, whose contents mean nothing afterwards; `device_own`: members whose format is
//    the device's own, which another backend can do without;
//  - `kOfRounded`, if its f32 outputs may be sums of what was rounded to bf16, and may differ as much as bf16 does;
//  - `cost()`: the least that a device must do.
#pragma once

#include <variant>

#include "backend/operands.h"

namespace tandem::backend {

class Backend;
class CpuBackend;
class CudaBackend;

namespace op {

// ---- memory

// Both have the same shape; converts between f32, bf16 and f64.
struct Copy {
  static constexpr const char* kName = "copy";
  View to;
  ConstView from;

  static constexpr auto outputs = std::tuple(&Copy::to);
  static constexpr auto inputs = std::tuple(&Copy::from);
  Cost cost() const { return {label_of(kName, to), bytes_of(to, from)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

struct FillZero {
  static constexpr const char* kName = "fill_zero";
  View to;

  static constexpr auto outputs = std::tuple(&FillZero::to);
  static constexpr auto inputs = std::tuple();
  Cost cost() const { return {label_of(kName, to), bytes_of(to)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// ---- matrix products: y [rows, out], x [rows, in], w [out, in]

// y = dropout(activation(x w' + bias))
struct Linear {
  static constexpr const char* kName = "linear";
  View y;
  View pre = {};   // [rows, out] in C: receives x w' + bias; needed for gelu and swish, else may be empty
  View gate = {};  // i32 [rows, (out + 31) / 32] or empty: memory for what relu's backward may need
  ConstView x;
  Weight w;
  ConstView bias = {};  // [out] in C, or empty
  Activation activation = Activation::none;
  Dropout dropout = {};

  static constexpr auto outputs = std::tuple(&Linear::y, &Linear::pre);
  static constexpr auto inputs = std::tuple(&Linear::x, &Linear::w, &Linear::bias, &Linear::dropout);
  static constexpr auto device_own = std::tuple(&Linear::gate);
  Cost cost() const {
    const bool more = activation != Activation::none || dropout.rate > 0;
    return {label_of(more ? "linear activation dropout" : kName, y, x.cols), bytes_of(y, x, w), flops_of(y, x.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// dx = (dy w) * activation' * dropout mask. The activation is the one that produced x.
struct LinearBackwardInput {
  static constexpr const char* kName = "linear_backward_input";
  static constexpr bool kOfRounded = true;  // a device may round before it adds up a column, which the CPU does not
  View dx;
  View column_sums = {};  // G [1, in] or empty: the sums of dx over its rows, the gradient of a bias before x
  ConstView dy;
  Weight w;
  ConstView saved = {};  // gelu, swish: `pre`; relu: x itself, which is 0 exactly where no gradient flows
  ConstView gate = {};   // the forward op's
  Activation activation = Activation::none;
  Dropout dropout = {};
  bool accumulate = false;
  bool accumulate_sums = true;

  static constexpr auto outputs = std::tuple(&LinearBackwardInput::dx, &LinearBackwardInput::column_sums);
  static constexpr auto inputs = std::tuple(&LinearBackwardInput::dy, &LinearBackwardInput::w,
                                            &LinearBackwardInput::saved, &LinearBackwardInput::dropout);
  static constexpr auto device_own = std::tuple(&LinearBackwardInput::gate);
  Cost cost() const {
    const bool more = activation != Activation::none;
    return {label_of(more ? "linear_backward_input activation" : kName, dx, dy.cols), bytes_of(dx, dy, w),
            flops_of(dx, dy.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// The gradients of one or more matrices; all have the same number of rows, and none shares memory with another. If G
// is wider than C, each part's product is made in C and added in G, which does not round: the sums do not depend on
// which parts came in which op.
struct LinearBackwardWeights {
  static constexpr const char* kName = "linear_backward_weights";
  std::span<const WeightGradient> gradients;
  RowParts parts = {};
  bool accumulate = true;

  static constexpr auto outputs = std::tuple(&LinearBackwardWeights::gradients);
  static constexpr auto inputs = std::tuple();
  Cost cost() const {
    Cost all{kName};
    for (const WeightGradient& g : gradients) {
      all.label += label_of(g.dbias.empty() ? "" : " bias", g.dw, g.dy.rows);
      all.bytes += (accumulate ? 2 : 1) * bytes_of(g.dw) + bytes_of(g.dy, g.x);
      all.flops += flops_of(g.dw, g.dy.rows);
    }
    return all;
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// ---- embedding

// x[r] = dropout(table[tokens[r]] * scale + positions[position[r]])
struct Embed {
  static constexpr const char* kName = "embed";
  View x;                      // C [rows, d]
  ConstView tokens, position;  // i32 [1, rows]
  Weight table;                // [V, d]
  ConstView positions;         // M [longest, d]
  float scale = 1;
  Dropout dropout = {};

  static constexpr auto outputs = std::tuple(&Embed::x);
  static constexpr auto inputs =
      std::tuple(&Embed::tokens, &Embed::position, &Embed::table, &Embed::positions, &Embed::dropout);
  Cost cost() const { return {label_of(kName, x), 2 * bytes_of(x)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// dtable[id] += scale * sum of masked dx over the id's rows, in the order given.
struct EmbedBackward {
  static constexpr const char* kName = "embed_backward";
  View dtable;   // G [V, d]
  ConstView dx;  // C [rows, d]
  TokenOrder order;
  float scale = 1;
  Dropout dropout = {};

  static constexpr auto outputs = std::tuple(&EmbedBackward::dtable);
  static constexpr auto inputs = std::tuple(&EmbedBackward::dx, &EmbedBackward::order, &EmbedBackward::dropout);
  Cost cost() const {
    return {label_of(kName, dx), bytes_of(dx) + 8 * static_cast<double>(order.ids.cols * dtable.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// table[ids[i]] += rows[i]
struct AddRows {
  static constexpr const char* kName = "add_rows";
  View table;      // M [V, d]
  ConstView ids;   // i32 [1, n], distinct; -1: this row is skipped
  ConstView rows;  // M [n, d]

  static constexpr auto outputs = std::tuple(&AddRows::table);
  static constexpr auto inputs = std::tuple(&AddRows::ids, &AddRows::rows);
  Cost cost() const { return {label_of(kName, rows), 3 * bytes_of(rows)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// ---- residual + dropout + layer norm in one pass

// sum = residual + dropout(branch); normed = (sum - mean) * rstd * gamma + beta.
struct ResidualNorm {
  static constexpr const char* kName = "residual_norm";
  View sum = {};  // [rows, d]; may be empty if nobody needs it again and it is not `residual`
  View normed;
  View statistics;        // M [rows, 2]: mean and rstd, for the backward pass
  ConstView residual;     // C [rows, d]
  ConstView branch = {};  // may be empty: the sum is then the residual
  ConstView gamma, beta;  // M [1, d]
  Dropout dropout = {};

  static constexpr auto outputs = std::tuple(&ResidualNorm::sum, &ResidualNorm::normed, &ResidualNorm::statistics);
  static constexpr auto inputs = std::tuple(&ResidualNorm::residual, &ResidualNorm::branch, &ResidualNorm::gamma,
                                            &ResidualNorm::beta, &ResidualNorm::dropout);
  Cost cost() const { return {label_of(kName, normed), bytes_of(sum, normed, statistics, residual, branch)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// The end of a sublayer: ResidualNorm of the branch x w' + bias.
struct LinearResidualNorm {
  static constexpr const char* kName = "linear_residual_norm";
  View sum, normed, statistics;  // written like ResidualNorm's
  View branch;                   // scratch, C [rows, d]
  ConstView x;                   // C [rows, in]
  Weight w;                      // [d, in]
  ConstView bias = {};           // C [1, d] or empty
  ConstView residual, gamma, beta;
  Dropout dropout = {};

  static constexpr auto outputs =
      std::tuple(&LinearResidualNorm::sum, &LinearResidualNorm::normed, &LinearResidualNorm::statistics);
  static constexpr auto inputs = std::tuple(&LinearResidualNorm::x, &LinearResidualNorm::w, &LinearResidualNorm::bias,
                                            &LinearResidualNorm::residual, &LinearResidualNorm::gamma,
                                            &LinearResidualNorm::beta, &LinearResidualNorm::dropout);
  static constexpr auto scratch = std::tuple(&LinearResidualNorm::branch);
  Cost cost() const {
    return {label_of(kName, normed, x.cols), bytes_of(sum, normed, statistics, residual, x, w),
            flops_of(normed, x.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
  void run_in_parts(Backend& backend) const;  // runs Linear and ResidualNorm
};

// d = norm's backward of dnormed, plus dsum; dresidual = d; dbranch = d * mask.
struct ResidualNormBackward {
  static constexpr const char* kName = "residual_norm_backward";
  View dresidual;       // may be the memory of dsum or of dnormed
  View dbranch = {};    // may be empty
  View dgamma, dbeta;   // G [1, d]
  View dbias = {};      // G [1, d] or empty: the sums of dbranch over its rows, for a bias that was added to the branch
  ConstView dnormed;    // C [rows, d]
  ConstView dsum = {};  // may be empty if nothing else used the sum
  ConstView sum;        // the forward op's
  ConstView statistics, gamma;
  Dropout dropout = {};
  bool accumulate = true;

  static constexpr auto outputs =
      std::tuple(&ResidualNormBackward::dresidual, &ResidualNormBackward::dbranch, &ResidualNormBackward::dgamma,
                 &ResidualNormBackward::dbeta, &ResidualNormBackward::dbias);
  static constexpr auto inputs =
      std::tuple(&ResidualNormBackward::dnormed, &ResidualNormBackward::dsum, &ResidualNormBackward::sum,
                 &ResidualNormBackward::statistics, &ResidualNormBackward::gamma, &ResidualNormBackward::dropout);
  Cost cost() const { return {label_of(kName, dnormed), bytes_of(dresidual, dbranch, dnormed, dsum, sum, statistics)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// ---- attention, sentence by sentence

// Data that attention ops with the same starts and rows share, computed once for all of them:
// Backend::attention_plan_size() numbers in a format of the device's own.
struct PlanAttention {
  static constexpr const char* kName = "plan_attention";
  View plan;
  ConstView query_starts, key_starts;
  int64_t query_rows = 0, key_rows = 0;

  static constexpr auto outputs = std::tuple();
  static constexpr auto inputs = std::tuple(&PlanAttention::query_starts, &PlanAttention::key_starts);
  static constexpr auto device_own = std::tuple(&PlanAttention::plan);
  Cost cost() const { return {fmt::format("{} {}", kName, query_rows), bytes_of(plan)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// out = dropout(softmax(q k' / sqrt(d / heads))) v
struct Attention {
  static constexpr const char* kName = "attention";
  View out;            // C [query rows, d]
  View log_sums = {};  // M [heads, query rows] or empty: log of the softmax's denominator, for the backward pass
  ConstView q, k, v;   // C [query rows, d], C [key rows, d]; they may be columns of a wider matrix
  AttentionShape shape;

  static constexpr auto outputs = std::tuple(&Attention::out, &Attention::log_sums);
  static constexpr auto inputs = std::tuple(&Attention::q, &Attention::k, &Attention::v, &Attention::shape);
  Cost cost() const {
    return {.label = label_of(shape.causal ? "attention causal" : kName, out),
            .bytes = bytes_of(out, log_sums, q, k, v),
            .flops_a_pair = 4 * static_cast<double>(q.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

struct AttentionBackward {
  static constexpr const char* kName = "attention_backward";
  View dq, dk, dv;
  ConstView dout, out, log_sums, q, k, v;
  AttentionShape shape;

  static constexpr auto outputs = std::tuple(&AttentionBackward::dq, &AttentionBackward::dk, &AttentionBackward::dv);
  static constexpr auto inputs =
      std::tuple(&AttentionBackward::dout, &AttentionBackward::out, &AttentionBackward::log_sums, &AttentionBackward::q,
                 &AttentionBackward::k, &AttentionBackward::v, &AttentionBackward::shape);
  Cost cost() const {
    return {.label = label_of(shape.causal ? "attention_backward causal" : kName, dq),
            .bytes = bytes_of(dq, dk, dv, dout, log_sums, q, k, v),
            .flops_a_pair = 8 * static_cast<double>(q.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// ---- loss

// Adds the loss of each row to *totals. With `state`, the gradient of (smoothed loss * state->loss_scale) is written
// over the logits. Smoothed target: 1 - smoothing on the label, smoothing / (V - 1) elsewhere.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  LossTotals* totals = nullptr;
  View logits;       // C [rows, V]
  ConstView labels;  // i32 [1, rows], -1 = no label: no loss, zero gradient
  float smoothing = 0;
  const StepState* state = nullptr;

  static constexpr auto outputs = std::tuple(&CrossEntropy::logits, &CrossEntropy::totals);
  static constexpr auto inputs = std::tuple(&CrossEntropy::labels, &CrossEntropy::state);
  Cost cost() const { return {label_of(kName, logits), 2 * bytes_of(logits)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// The output projection, its loss and their gradients: logits = x w', then CrossEntropy; dx is written, dw is written
// or added to.
struct ProjectedLoss {
  static constexpr const char* kName = "projected_loss";
  static constexpr bool kOfRounded = true;  // the device may round something other than the logits' gradient
  LossTotals* totals = nullptr;             // added to
  View dx, dw;                              // C [rows, d], G [V, d]
  View logits;                              // scratch, C [rows + DeviceTraits::spare_logit_rows, V]
  ConstView x;                              // C [rows, d]
  Weight w;                                 // [V, d]
  ConstView labels;                         // i32 [1, rows], -1 = no label
  float smoothing = 0;
  const StepState* state = nullptr;
  RowParts parts = {};
  bool accumulate = true;

  static constexpr auto outputs = std::tuple(&ProjectedLoss::dx, &ProjectedLoss::dw, &ProjectedLoss::totals);
  static constexpr auto inputs =
      std::tuple(&ProjectedLoss::x, &ProjectedLoss::w, &ProjectedLoss::labels, &ProjectedLoss::state);
  static constexpr auto scratch = std::tuple(&ProjectedLoss::logits);
  Cost cost() const {
    const View used = logits.slice_rows(0, x.rows);
    return {label_of(kName, used, x.cols), 3 * bytes_of(used, w) + bytes_of(dx, dw, x), 3 * flops_of(used, x.cols)};
  }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
  void run_in_parts(Backend& backend) const;  // runs matrix products and CrossEntropy
};

// ---- optimizer, on flat buffers [1, n] in M

// The first half of a gradient's norm, for each of the pieces that it lies in, on one or several ranks.
struct SumOfSquares {
  static constexpr const char* kName = "sum_of_squares";
  View sum;  // f64 [1, 1]
  ConstView x;

  static constexpr auto outputs = std::tuple(&SumOfSquares::sum);
  static constexpr auto inputs = std::tuple(&SumOfSquares::x);
  Cost cost() const { return {kName, bytes_of(x)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// The second half: *update from the pieces' sums of squares, which are added in their order. The update is counted if
// the norm is finite.
struct PrepareUpdate {
  static constexpr const char* kName = "prepare_update";
  UpdateState* update = nullptr;
  ConstView sums;  // f64 [1, n]
  UpdateSettings settings;

  static constexpr auto outputs = std::tuple(&PrepareUpdate::update);
  static constexpr auto inputs = std::tuple(&PrepareUpdate::sums);
  Cost cost() const { return {kName, bytes_of(sums)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// Adam as in PyTorch. Does nothing if !update->finite.
struct Adam {
  static constexpr const char* kName = "adam";
  View masters, m, v;
  View compute = {};  // the bf16 copy to refresh, or empty
  ConstView gradients;
  AdamSettings settings;
  const StepState* state = nullptr;
  const UpdateState* update = nullptr;

  static constexpr auto outputs = std::tuple(&Adam::masters, &Adam::m, &Adam::v, &Adam::compute);
  static constexpr auto inputs = std::tuple(&Adam::gradients, &Adam::state, &Adam::update);
  Cost cost() const { return {kName, 2 * bytes_of(masters, m, v) + bytes_of(compute, gradients)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// average = decay * average + (1 - decay) * masters with update->average_decay; does nothing if !update->finite.
struct MovingAverage {
  static constexpr const char* kName = "moving_average";
  View average;
  ConstView masters;
  const UpdateState* update = nullptr;

  static constexpr auto outputs = std::tuple(&MovingAverage::average);
  static constexpr auto inputs = std::tuple(&MovingAverage::masters, &MovingAverage::update);
  Cost cost() const { return {kName, 2 * bytes_of(average) + bytes_of(masters)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// ---- decoding

struct AttentionCached {
  static constexpr const char* kName = "attention_cached";
  View out;
  ConstView q;
  CachedKeys cache;
  int heads = 1;

  static constexpr auto outputs = std::tuple(&AttentionCached::out);
  static constexpr auto inputs = std::tuple(&AttentionCached::q, &AttentionCached::cache);
  Cost cost() const { return {label_of(kName, out), bytes_of(out, q)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// The k most likely pieces of each row, best first, ties to the lower id, and their log-probabilities under the whole
// softmax.
struct TopLogProbabilities {
  static constexpr const char* kName = "top_log_probabilities";
  View values, ids;  // f32 [rows, k], i32 [rows, k]
  ConstView logits;

  static constexpr auto outputs = std::tuple(&TopLogProbabilities::values, &TopLogProbabilities::ids);
  static constexpr auto inputs = std::tuple(&TopLogProbabilities::logits);
  Cost cost() const { return {label_of(kName, logits), bytes_of(logits)}; }
  void run(CpuBackend& cpu) const;
  void run(CudaBackend& gpu) const;
};

// The only list of all ops.
using Any = std::variant<Copy, FillZero, Linear, LinearBackwardInput, LinearBackwardWeights, Embed, EmbedBackward,
                         AddRows, ResidualNorm, LinearResidualNorm, ResidualNormBackward, PlanAttention, Attention,
                         AttentionBackward, CrossEntropy, ProjectedLoss, SumOfSquares, PrepareUpdate, Adam,
                         MovingAverage, AttentionCached, TopLogProbabilities>;

}  // namespace op
}  // namespace tandem::backend
