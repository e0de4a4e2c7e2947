// The one door to arithmetic. A Backend is a set of kernels over views: outputs first, then inputs, then scalars.
//
// The CPU twin (backend/cpu/<op>.cc) is the specification; another device gives the same numbers, fast.
//
// Contracts that hold for every op:
//  - Gradients are written (=) unless `accumulate` is given; then they are added to (+=). Not so embed_backward's: they
//    are always added to.
//  - Matrices are packed: a row is a token, sentences lie one after the other, there is no padding. Rows past the
//    true count (a device may work on a fixed capacity) hold finite numbers and never touch a weight.
//  - The types: activations and compute weights in the compute type C (f32, bf16; f64 in tests); masters, moments,
//    norm parameters and statistics in the master type M (f32; f64 in tests); parameter gradients, which are sums over
//    rows, in G: M, or on a CPU f64; sums of losses in f64; indices in i32.
//  - Same input, same bits: reductions run in an order that is fixed by shape, whatever the number of threads.
//  - Shapes are checked in nn/, once; kernels contain arithmetic only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backend/queue.h"
#include "core/side.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace tandem {

// What a step's kernels read from memory that is written before the step, so that a captured graph can be replayed.
// Lies where the backend computes.
struct StepState {
  uint64_t seed = 0;
  uint32_t step = 0;          // optimizer step, from 0
  uint32_t first_source = 0;  // index of the micro-batch's first token in the step's global batch, source side
  uint32_t first_target = 0;  // the same on the target side
  float loss_scale = 1;       // multiplies the loss's gradient: 1 / target tokens of the global batch
  float learning_rate = 0;
  double pause = 0;  // not 0: this rank wants a pause after this step, to save or to stop
};

// Dropout whose mask is a function of (seed, step, place in the model, token, column): Philox, eight columns a call,
// keep where a 16-bit lane >= rate * 65536. Kept values are multiplied by 1 / (1 - rate). rate = 0: off.
struct Dropout {
  float rate = 0;
  uint32_t place = 0;                // one number for each dropout of the model; attention uses place + head
  Side side = Side::source;          // which first-token index of the state counts
  const StepState* state = nullptr;  // in the backend's memory
};

enum class Activation : uint8_t { none, relu, gelu, swish };  // gelu: the exact one, with erf

// y = dropout(activation(x w' + bias))
struct Epilogue {
  View bias;                                 // [out] in C, or empty
  Activation activation = Activation::none;  //
  View pre;                                  // [rows, out] in C: receives x w' + bias; needed for gelu and swish
  Dropout dropout = {};
  // i32 [rows, (out + 31) / 32] or empty: room for what relu's backward may want to know, in a format of its own.
  View gate = {};
};

// dx = (dy w) * activation' * dropout mask. The activation is the one that produced x.
struct BackwardEpilogue {
  Activation activation = Activation::none;
  View saved;  // relu: x itself (after dropout), which is 0 exactly where no gradient flows; gelu, swish: its `pre`
  Dropout dropout = {};
  View gate = {};         // the forward's
  View column_sums = {};  // G [1, in] or empty: the sums of dx over its rows, the gradient of a bias before x
  bool accumulate_sums = true;
};

// Gradients of a norm's parameters and, where not empty, of a bias that was added to the branch before it: the sums of
// dbranch over its rows. All G [1, d].
struct NormGradients {
  View gamma, beta;
  View branch_bias = {};
  bool accumulate = true;
};

// Where the parts of a batch's rows begin, and the last one's end, from 0; in host memory. Empty: all rows are one
// part.
using RowParts = std::span<const int32_t>;

// Sentence i owns the rows starts[i] to starts[i + 1] of its side.
struct AttentionShape {
  int heads = 1;
  bool causal = false;
  View query_starts;  // i32 [1, sentences + 1]
  View key_starts;    // i32 [1, sentences + 1]
  int64_t longest_query = 0;
  int64_t longest_key = 0;
  Dropout dropout = {};  // token = query's index in the global batch, column = key's position in its sentence
  View plan = {};        // i32, of plan_attention; or empty
};

// Which rows of a batch hold which token, so that an embedding's gradient can be added up without atomics.
struct TokenOrder {
  View rows;    // i32 [1, tokens]: row numbers, sorted by token id, rows of one id in rising order
  View ids;     // i32 [1, runs]: the distinct ids, rising
  View starts;  // i32 [1, runs + 1]: where each id's rows begin in `rows`
};

// Keys and values of one decoding step: row r of the queries attends to length[r] cached rows, which are
// index[r][0..length) or, without an index, first[r], first[r] + 1, ...
struct CachedKeys {
  View keys;    // C [cached, d]
  View values;  // C [cached, d]
  View length;  // i32 [1, rows]
  View first;   // i32 [1, rows], or empty
  View index;   // i32 [rows, longest], or empty
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
  float average_decay = 0;  // of the moving average of the weights
};

// What an update knows of itself, in the backend's memory: gradient_norm writes it, adam and moving_average read it.
// Only `updates` lives on from one update to the next.
struct UpdateState {
  double norm = 0;             // of the gradient, before clipping
  float clip_factor = 1;       // min(1, max_norm / norm)
  uint32_t finite = 1;         // 0: this update changes nothing and is not counted
  uint32_t updates = 0;        // updates done, this one counted
  float bias_correction1 = 1;  // 1 - beta1^updates
  float bias_correction2 = 1;  // 1 - beta2^updates
  // The average follows faster at the beginning, so that it forgets the initial weights: with t = updates,
  // min(average_decay, (1 + t) / (10 + t)).
  float average_decay = 0;
};

// Sums over target tokens, in the backend's memory; added to by cross_entropy.
struct LossTotals {
  double smoothed = 0;  // label-smoothed cross-entropy, nats
  double nll = 0;       // plain negative log-likelihood, nats
  double correct = 0;   // tokens whose most likely piece is the label
  double tokens = 0;
};

// The output projection, its loss and their gradients: logits = x w', then cross_entropy, dx = and dw = (or +=) its
// gradients.
struct ProjectedLoss {
  static constexpr int64_t kSpareRows = 8;

  LossTotals* totals = nullptr;  // added to
  View dx, dw;                   // C [rows, d], G [V, d]
  View logits;                   // memory, C [rows + kSpareRows, V]; what it holds afterwards means nothing
  View x, w;                     // C [rows, d], C [V, d]
  View labels;                   // i32 [1, rows], -1 = no label
  float smoothing = 0;
  const StepState* state = nullptr;
  RowParts parts = {};
  bool accumulate = true;
};

// The end of a sublayer: residual_norm of the branch x w' + bias.
struct LinearResidualNorm {
  View sum, normed, statistics;  // as residual_norm writes them
  View branch;                   // memory, C [rows, d]; what it holds afterwards means nothing
  View x, w, bias;               // C [rows, in], C [d, in], C [1, d] or empty
  View residual, gamma, beta;
  Dropout dropout;
};

// The gradients of a matrix and its bias: dw = dy' x, dbias = the column sums of dy, or += .
struct WeightGradient {
  View dw, dbias;  // G [out, in], G [1, out] or empty
  View dy, x;      // C [rows, out], C [rows, in]
};

// The device has less memory than was asked for; what was there before is as it was.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description() const = 0;
  // Whether a step should have one shape: work that is recorded at a fixed capacity and run again and again. Otherwise
  // a step works on the true counts.
  virtual bool fixed_shape() const = 0;
  // Whether it computes in this type at the speed of the hardware: f32 or bf16.
  virtual bool computes(DType type) const = 0;
  // How many rows of logits [rows, V] to hold at one time.
  virtual int64_t loss_rows() const = 0;
  // How many sentences to decode together.
  virtual int64_t decode_sentences() const = 0;
  // How many rows a step of decoding should have where it needs this many.
  virtual int64_t decode_rows(int64_t needed) const { return needed; }
  // How many rows of this width a round may have, apart from what fits the memory.
  virtual int64_t most_rows(int64_t /*width*/) const { return INT64_MAX; }
  // Fails where the ops cannot take rows of this width, or so many heads of it.
  virtual void require_sizes(int64_t /*width*/, int64_t /*heads*/) const {}
  // Bytes of the device's memory that are free, and all of them; the machine's on a CPU.
  struct MemorySizes {
    size_t free = 0, total = 0;
    size_t own = 0;  // that the backend took for itself when it was made
  };
  virtual MemorySizes memory_sizes() const = 0;

  // ---- order. Ops run in the order in which they are given; a device may still be at it when the call has returned.
  virtual void wait() = 0;  // until all that was given is done; fails with what went wrong in it
  // What the ops are given to, for those who must order other work with them; empty on a CPU.
  virtual DeviceStream stream() const { return {}; }
  // *time becomes the moment at which the ops given so far are done: nanoseconds of the device's own clock.
  virtual void stamp(uint64_t* time) = 0;
  // `body` gives ops, and neither allocates, uploads nor downloads. It is run once to record, not to compute.
  virtual std::unique_ptr<Recording> record(std::function<void()> body) = 0;
  virtual std::unique_ptr<Feed> make_feed(size_t bytes) = 0;
  virtual std::unique_ptr<Outbox> make_outbox(size_t bytes) = 0;

  // ---- choice among algorithms, where there is one (matrix products on a GPU). While tuning, the first call of each
  // shape times what there is and keeps the fastest. The choices as text: one line a shape, empty on a CPU.
  virtual void set_tuning(bool /*on*/) {}
  virtual std::string algorithms() const { return {}; }
  virtual void use_algorithms(const std::string& /*table*/, const std::string& /*name*/) {}

  // ---- memory
  virtual Buffer allocate(size_t bytes) = 0;                  // uninitialised; may throw OutOfMemory
  virtual void upload(const View& to, const void* from) = 0;  // from host memory, contiguous views
  virtual void download(void* to, const View& from) = 0;      // to host memory, contiguous views; waits
  virtual void copy(const View& to, const View& from) = 0;    // same shape; converts between f32, bf16 and f64
  virtual void fill_zero(const View& to) = 0;

  // ---- While on, gradients that are sums over rows (of biases, and of a norm's gamma and beta) may be put off, to be
  // computed together; all of them are done when it is off again.
  virtual void hold_sums(bool /*on*/) {}

  // ---- matrix products: y [rows, out], x [rows, in], w [out, in]
  virtual void linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) = 0;
  virtual void linear_backward_input(const View& dx, const View& dy, const View& w, const BackwardEpilogue& epilogue,
                                     bool accumulate) = 0;
  // dw = dy' x; dbias = column sums of dy (dbias may be empty); or += . dw, dbias in G. Where G is wider than C, each
  // part's product is made in C and added in G, which does not round: the sums do not depend on which parts came in
  // which call.
  virtual void linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x, RowParts parts,
                                      bool accumulate) = 0;
  // The same for several matrices, all with the same number of rows and none with memory of another; one after the
  // other, unless there is something faster.
  virtual void linear_backward_weights(std::span<const WeightGradient> gradients, RowParts parts, bool accumulate);

  // ---- embedding: x[r] = dropout(table[tokens[r]] * scale + positions[position[r]])
  // table C [V, d]; positions M [longest, d]; tokens, position i32 [1, rows].
  virtual void embed(const View& x, const View& tokens, const View& position, const View& table, const View& positions,
                     float scale, const Dropout& dropout) = 0;
  // dtable[id] += scale * sum of masked dx over the id's rows, in the order given. dtable in G.
  virtual void embed_backward(const View& dtable, const View& dx, const TokenOrder& order, float scale,
                              const Dropout& dropout) = 0;

  // table[ids[i]] += rows[i]; ids i32 [1, n] are distinct, -1 = leave this row out. table M [V, d], rows M [n, d].
  virtual void add_rows(const View& table, const View& ids, const View& rows) = 0;

  // ---- residual + dropout + layer norm (epsilon 1e-6) in one pass
  // sum = residual + dropout(branch); normed = (sum - mean) * rstd * gamma + beta.
  // branch may be empty (then sum = residual); sum may be empty where nobody needs it again and it is not `residual`.
  // statistics M [rows, 2]: mean and rstd, for the backward pass. gamma, beta M [1, d].
  virtual void residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                             const View& branch, const View& gamma, const View& beta, const Dropout& dropout) = 0;
  // The same with the product that makes the branch; one after the other, unless there is something faster.
  virtual void linear_residual_norm(const LinearResidualNorm& end);
  // d = norm's backward of dnormed, plus dsum (may be empty: nothing else used the sum);
  // dresidual = d; dbranch = d * mask (may be empty). `sum` is the forward's.
  // dresidual may be the same memory as dsum or dnormed.
  virtual void residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                                      const View& dnormed, const View& dsum, const View& sum, const View& statistics,
                                      const View& gamma, const Dropout& dropout) = 0;

  // What calls of attention with the same starts and rows have in common, made once for all of them: shape.plan, of
  // this many numbers, 0 where there is nothing to plan.
  virtual int64_t attention_plan_size(const AttentionShape& /*shape*/, int64_t /*query_rows*/) const { return 0; }
  virtual void plan_attention(const AttentionShape& /*shape*/, int64_t /*query_rows*/, int64_t /*key_rows*/) {}

  // ---- attention, sentence by sentence: out = dropout(softmax(q k' / sqrt(d / heads))) v
  // q, out C [query rows, d]; k, v C [key rows, d] (they may be columns of a wider matrix).
  // log_sums M [heads, query rows]: log of the softmax's denominator, for the backward pass; may be empty.
  virtual void attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                         const AttentionShape& shape) = 0;
  virtual void attention_backward(const View& dq, const View& dk, const View& dv, const View& dout, const View& out,
                                  const View& log_sums, const View& q, const View& k, const View& v,
                                  const AttentionShape& shape) = 0;

  // ---- loss over logits C [rows, V]; labels i32 [1, rows], -1 = no label (no loss, zero gradient)
  // Adds to *totals. With `state` the gradient of (smoothed loss * state->loss_scale) is written over the logits.
  // Smoothed target: 1 - smoothing on the label, smoothing / (V - 1) elsewhere.
  virtual void cross_entropy(LossTotals* totals, const View& logits, const View& labels, float smoothing,
                             const StepState* state) = 0;
  // The ops above one after the other, unless there is something faster.
  virtual void projected_loss(const ProjectedLoss& loss);

  // ---- optimizer, on flat buffers [1, n] in M
  // Writes all of *update; counts the update where the norm is finite.
  virtual void gradient_norm(UpdateState* update, const View& gradients, const UpdateSettings& settings) = 0;
  // The same in two parts, for gradients that lie in pieces or on several ranks: sum [1, 1] in f64 = the sum of squares
  // of x; then *update from sums f64 [1, n], added in their order.
  virtual void sum_of_squares(const View& sum, const View& x) = 0;
  virtual void prepare_update(UpdateState* update, const View& sums, const UpdateSettings& settings) = 0;
  // Adam as in PyTorch. `compute` is the bf16 copy to refresh, or empty. Does nothing where !update->finite.
  virtual void adam(const View& masters, const View& m, const View& v, const View& compute, const View& gradients,
                    const AdamSettings& settings, const StepState* state, const UpdateState* update) = 0;
  // average = decay * average + (1 - decay) * masters with update->average_decay; nothing where !update->finite.
  virtual void moving_average(const View& average, const View& masters, const UpdateState* update) = 0;

  // ---- decoding
  virtual void attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) = 0;
  // The k most likely pieces of each row, best first, ties to the lower id, and their log-probabilities under the
  // whole softmax. values f32 [rows, k], ids i32 [rows, k].
  virtual void top_log_probabilities(const View& values, const View& ids, const View& logits) = 0;
};

// device: "cpu", "cuda", "cuda:N" or "auto", which takes the first usable GPU and else the CPU. Fails with one sentence
// where the device is missing or too old, or the program was not compiled for it. threads: of a CPU, 0 = all usable
// cores.
std::unique_ptr<Backend> make_backend(const std::string& device, int threads = 0);

// Whether this machine's CPU multiplies bf16 in hardware (AVX512_BF16 or AMX-BF16).
bool cpu_has_native_bf16();

// threads 0 = all usable cores.
std::unique_ptr<Backend> make_cpu_backend(int threads = 0);

}  // namespace tandem
