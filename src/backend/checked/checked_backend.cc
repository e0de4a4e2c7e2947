#include "backend/checked/checked_backend.h"

#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace tandem {

namespace {

// Other than empty(), also where there is memory.
bool has_no_elements(const View& view) { return view.rows == 0 || view.cols == 0; }

// Of the difference's norm to the expected values' norm: what rounding to bf16, once or twice, and another order of
// additions explain. f32 results (gradients of parameters, statistics) come from bf16 operands that are the same,
// unless an op says otherwise.
constexpr double kRounded = 1.2e-2, kSummed = 2e-3;

size_t span_of(const View& view) {  // elements from the first to the last
  return has_no_elements(view) ? 0 : static_cast<size_t>((view.rows - 1) * view.stride + view.cols);
}

double element(const View& view, size_t i) {
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

// Fails where `actual` is not what is expected; both in host memory, same shape and stride.
void compare(const char* op, int output, const View& actual, const View& expected, double tolerance) {
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
          "the device does not compute what the CPU does: output {} of {} [{}x{}] differs by {:.3g} of {:.3g} (norms), "
          "most at row {}, column {}: {:.6g} instead of {:.6g}",
          output, op, actual.rows, actual.cols, std::sqrt(difference), std::sqrt(norm), worst_row, worst_col,
          element(actual, static_cast<size_t>(worst_row * actual.stride + worst_col)),
          element(expected, static_cast<size_t>(worst_row * actual.stride + worst_col)));
}

}  // namespace

// Hands out, for what lies on the device, copies in host memory; one for each address, so that views that share memory
// on the device share it here.
class CheckedBackend::Twin {
 public:
  explicit Twin(Backend& device) : device_(device) {}

  View operator()(const View& view) {
    if (has_no_elements(view)) {
      return view.empty() ? View{} : host_of(view, &nothing_);
    }
    std::vector<std::byte>& memory = copies_[view.data];
    const size_t bytes = span_of(view) * size_of(view.dtype);
    if (memory.size() < bytes) {
      memory.resize(bytes);
      device_.download(memory.data(), flat(view));
    }
    return host_of(view, memory.data());
  }
  template <class T>
  T* operator()(T* value) {
    if (value == nullptr) {
      return nullptr;
    }
    static_assert(sizeof(T) % 4 == 0);
    using Plain = std::remove_const_t<T>;
    const View words = make_view(const_cast<Plain*>(value), DType::i32, 1, sizeof(T) / 4, Memory::device);
    return static_cast<T*>((*this)(words).data);
  }
  Dropout operator()(Dropout dropout) {
    dropout.state = dropout.rate > 0 ? (*this)(dropout.state) : nullptr;
    return dropout;
  }
  AttentionShape operator()(AttentionShape shape) {
    shape.query_starts = (*this)(shape.query_starts);
    shape.key_starts = (*this)(shape.key_starts);
    shape.dropout = (*this)(shape.dropout);
    shape.plan = {};  // the device's own
    return shape;
  }

  static View flat(const View& view) {
    return make_view(view.data, view.dtype, 1, static_cast<int64_t>(span_of(view)), view.memory);
  }

 private:
  static View host_of(View view, void* memory) {
    view.data = memory;
    view.memory = Memory::host;
    return view;
  }

  Backend& device_;
  std::map<const void*, std::vector<std::byte>> copies_;
  std::byte nothing_{};
};

namespace {

// Hands out what it is given: for the device itself.
struct Same {
  template <class T>
  const T& operator()(const T& value) const {
    return value;
  }
};

}  // namespace

template <class Give>
void CheckedBackend::check(const char* op, const std::vector<View>& outputs, const Give& give, Sums f32) {
  if (!checking_) {
    give(inner_, Same{});
    return;
  }
  Twin twin(inner_);
  give(*cpu_, twin);  // copies what the op reads before the device writes over it
  give(inner_, Same{});
  int number = 0;
  for (const View& output : outputs) {
    ++number;
    if (!has_no_elements(output)) {
      std::vector<std::byte> memory(span_of(output) * size_of(output.dtype));
      inner_.download(memory.data(), Twin::flat(output));
      View actual = output;
      actual.data = memory.data();
      actual.memory = Memory::host;
      const bool rounded = output.dtype == DType::bf16 || (output.dtype == DType::f32 && f32 == Sums::of_rounded);
      const bool exact = output.dtype == DType::i32;
      compare(op, number, actual, twin(output), rounded ? kRounded : exact ? 0 : kSummed);
    }
  }
  ++ops_checked_;
}

CheckedBackend::CheckedBackend(std::unique_ptr<Backend> device, int threads)
    : ForwardingBackend(*device), device_(std::move(device)), cpu_(make_cpu_backend(threads)) {}

void CheckedBackend::copy(const View& to, const View& from) {
  check("copy", {to}, [&](Backend& b, auto&& at) { b.copy(at(to), at(from)); });
}

void CheckedBackend::fill_zero(const View& to) {
  check("fill_zero", {to}, [&](Backend& b, auto&& at) { b.fill_zero(at(to)); });
}

void CheckedBackend::linear(const View& y, const View& x, const View& w, const Epilogue& epilogue) {
  check("linear", {y, epilogue.pre}, [&](Backend& b, auto&& at) {
    Epilogue e = epilogue;
    e.bias = at(e.bias);
    e.pre = at(e.pre);
    e.dropout = at(e.dropout);
    e.gate = at(e.gate);
    b.linear(at(y), at(x), at(w), e);
  });
}

// The device may add up a column before its last rounding, and after one that the CPU does not do.
void CheckedBackend::linear_backward_input(const View& dx, const View& dy, const View& w,
                                           const BackwardEpilogue& epilogue, bool accumulate) {
  const auto give = [&](Backend& b, auto&& at) {
    BackwardEpilogue e = epilogue;
    e.saved = at(e.saved);
    e.dropout = at(e.dropout);
    e.gate = at(e.gate);
    e.column_sums = at(e.column_sums);
    b.linear_backward_input(at(dx), at(dy), at(w), e, accumulate);
  };
  check("linear_backward_input", {dx, epilogue.column_sums}, give, Sums::of_rounded);
}

void CheckedBackend::linear_backward_weight(const View& dw, const View& dbias, const View& dy, const View& x,
                                            RowParts parts, bool accumulate) {
  check("linear_backward_weight", {dw, dbias},
        [&](Backend& b, auto&& at) { b.linear_backward_weight(at(dw), at(dbias), at(dy), at(x), parts, accumulate); });
}

void CheckedBackend::linear_backward_weights(std::span<const WeightGradient> gradients, RowParts parts,
                                             bool accumulate) {
  std::vector<View> outputs;
  for (const WeightGradient& g : gradients) {
    outputs.insert(outputs.end(), {g.dw, g.dbias});
  }
  check("linear_backward_weights", outputs, [&](Backend& b, auto&& at) {
    std::vector<WeightGradient> given;
    for (const WeightGradient& g : gradients) {
      given.push_back({at(g.dw), at(g.dbias), at(g.dy), at(g.x)});
    }
    b.linear_backward_weights(given, parts, accumulate);
  });
}

void CheckedBackend::embed(const View& x, const View& tokens, const View& position, const View& table,
                           const View& positions, float scale, const Dropout& dropout) {
  check("embed", {x}, [&](Backend& b, auto&& at) {
    b.embed(at(x), at(tokens), at(position), at(table), at(positions), scale, at(dropout));
  });
}

void CheckedBackend::embed_backward(const View& dtable, const View& dx, const TokenOrder& order, float scale,
                                    const Dropout& dropout) {
  check("embed_backward", {dtable}, [&](Backend& b, auto&& at) {
    b.embed_backward(at(dtable), at(dx), {at(order.rows), at(order.ids), at(order.starts)}, scale, at(dropout));
  });
}

void CheckedBackend::add_rows(const View& table, const View& ids, const View& rows) {
  check("add_rows", {table}, [&](Backend& b, auto&& at) { b.add_rows(at(table), at(ids), at(rows)); });
}

void CheckedBackend::residual_norm(const View& sum, const View& normed, const View& statistics, const View& residual,
                                   const View& branch, const View& gamma, const View& beta, const Dropout& dropout) {
  check("residual_norm", {sum, normed, statistics}, [&](Backend& b, auto&& at) {
    b.residual_norm(at(sum), at(normed), at(statistics), at(residual), at(branch), at(gamma), at(beta), at(dropout));
  });
}

void CheckedBackend::linear_residual_norm(const LinearResidualNorm& end) {
  check("linear_residual_norm", {end.sum, end.normed, end.statistics}, [&](Backend& b, auto&& at) {
    LinearResidualNorm here = end;
    for (View* view : {&here.sum, &here.normed, &here.statistics, &here.branch, &here.x, &here.w, &here.bias,
                       &here.residual, &here.gamma, &here.beta}) {
      *view = at(*view);
    }
    here.dropout = at(end.dropout);
    b.linear_residual_norm(here);
  });
}

void CheckedBackend::residual_norm_backward(const View& dresidual, const View& dbranch, const NormGradients& gradients,
                                            const View& dnormed, const View& dsum, const View& sum,
                                            const View& statistics, const View& gamma, const Dropout& dropout) {
  const NormGradients& g = gradients;
  check("residual_norm_backward", {dresidual, dbranch, g.gamma, g.beta, g.branch_bias}, [&](Backend& b, auto&& at) {
    b.residual_norm_backward(at(dresidual), at(dbranch), {at(g.gamma), at(g.beta), at(g.branch_bias), g.accumulate},
                             at(dnormed), at(dsum), at(sum), at(statistics), at(gamma), at(dropout));
  });
}

void CheckedBackend::attention(const View& out, const View& log_sums, const View& q, const View& k, const View& v,
                               const AttentionShape& shape) {
  check("attention", {out, log_sums},
        [&](Backend& b, auto&& at) { b.attention(at(out), at(log_sums), at(q), at(k), at(v), at(shape)); });
}

void CheckedBackend::attention_backward(const View& dq, const View& dk, const View& dv, const View& dout,
                                        const View& out, const View& log_sums, const View& q, const View& k,
                                        const View& v, const AttentionShape& shape) {
  check("attention_backward", {dq, dk, dv}, [&](Backend& b, auto&& at) {
    b.attention_backward(at(dq), at(dk), at(dv), at(dout), at(out), at(log_sums), at(q), at(k), at(v), at(shape));
  });
}

void CheckedBackend::cross_entropy(LossTotals* totals, const View& logits, const View& labels, float smoothing,
                                   const StepState* state) {
  const View sums = make_view(totals, DType::f64, 1, sizeof(LossTotals) / sizeof(double), Memory::device);
  check("cross_entropy", {logits, sums},
        [&](Backend& b, auto&& at) { b.cross_entropy(at(totals), at(logits), at(labels), smoothing, at(state)); });
}

// The device may round other things than the gradient of the logits.
void CheckedBackend::projected_loss(const ProjectedLoss& loss) {
  const View sums = make_view(loss.totals, DType::f64, 1, sizeof(LossTotals) / sizeof(double), Memory::device);
  const auto give = [&](Backend& b, auto&& at) {
    ProjectedLoss here = loss;
    here.totals = at(loss.totals);
    here.state = at(loss.state);
    for (View* view : {&here.dx, &here.dw, &here.logits, &here.x, &here.w, &here.labels}) {
      *view = at(*view);
    }
    b.projected_loss(here);
  };
  check("projected_loss", {loss.dx, loss.dw, sums}, give, Sums::of_rounded);
}

void CheckedBackend::gradient_norm(UpdateState* update, const View& gradients, const UpdateSettings& settings) {
  const View norm = make_view(update, DType::f64, 1, 1, Memory::device);
  check("gradient_norm", {norm}, [&](Backend& b, auto&& at) { b.gradient_norm(at(update), at(gradients), settings); });
}

void CheckedBackend::prepare_update(UpdateState* update, const View& sums, const UpdateSettings& settings) {
  const View norm = make_view(update, DType::f64, 1, 1, Memory::device);
  check("prepare_update", {norm}, [&](Backend& b, auto&& at) { b.prepare_update(at(update), at(sums), settings); });
}

void CheckedBackend::sum_of_squares(const View& sum, const View& x) {
  check("sum_of_squares", {sum}, [&](Backend& b, auto&& at) { b.sum_of_squares(at(sum), at(x)); });
}

void CheckedBackend::adam(const View& masters, const View& m, const View& v, const View& compute, const View& gradients,
                          const AdamSettings& settings, const StepState* state, const UpdateState* update) {
  check("adam", {masters, m, v, compute}, [&](Backend& b, auto&& at) {
    b.adam(at(masters), at(m), at(v), at(compute), at(gradients), settings, at(state), at(update));
  });
}

void CheckedBackend::moving_average(const View& average, const View& masters, const UpdateState* update) {
  check("moving_average", {average},
        [&](Backend& b, auto&& at) { b.moving_average(at(average), at(masters), at(update)); });
}

void CheckedBackend::attention_cached(const View& out, const View& q, const CachedKeys& cache, int heads) {
  check("attention_cached", {out}, [&](Backend& b, auto&& at) {
    b.attention_cached(at(out), at(q),
                       {at(cache.keys), at(cache.values), at(cache.length), at(cache.first), at(cache.index)}, heads);
  });
}

void CheckedBackend::top_log_probabilities(const View& values, const View& ids, const View& logits) {
  check("top_log_probabilities", {values, ids},
        [&](Backend& b, auto&& at) { b.top_log_probabilities(at(values), at(ids), at(logits)); });
}

}  // namespace tandem
