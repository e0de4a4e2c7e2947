#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd.h"

namespace tandem::backend {

namespace {

constexpr int64_t kChunk = 1 << 14;

// The factors of every element's update, computed once in double.
template <class A>
struct Factors {
  A clip, lerp1, beta2, rest2, step, root_correction2, epsilon, added_decay, kept_weight;

  Factors(const AdamSettings& settings, const StepState& state, const UpdateState& update)
      : clip(static_cast<A>(update.clip_factor)),
        lerp1(static_cast<A>(1 - static_cast<double>(settings.beta1))),
        beta2(static_cast<A>(settings.beta2)),
        rest2(static_cast<A>(1 - static_cast<double>(settings.beta2))),
        step(static_cast<A>(static_cast<double>(state.learning_rate) / static_cast<double>(update.bias_correction1))),
        root_correction2(static_cast<A>(std::sqrt(static_cast<double>(update.bias_correction2)))),
        epsilon(static_cast<A>(settings.epsilon)),
        added_decay(static_cast<A>(settings.decoupled ? 0.0F : settings.weight_decay)),
        kept_weight(static_cast<A>(settings.decoupled ? 1 - static_cast<double>(state.learning_rate) *
                                                                static_cast<double>(settings.weight_decay)
                                                      : 1.0)) {}
};

// PyTorch's Adam and AdamW. `compute` may be null.
template <class A>
void update_part(A* weights, A* m, A* v, bf16* compute, const A* gradients, const Factors<A>& f, int64_t n) {
  for_vectors<A>(n, [&](int64_t i, auto part) {
    const Vec<A> weight = load(weights + i, part);
    const Vec<A> gradient = load(gradients + i, part) * f.clip + weight * f.added_decay;
    const Vec<A> old = load(m + i, part);
    const Vec<A> first = old + (gradient - old) * f.lerp1;
    const Vec<A> second = load(v + i, part) * f.beta2 + gradient * gradient * f.rest2;
    const Vec<A> denominator = square_root<A>(second) / f.root_correction2 + f.epsilon;
    const Vec<A> updated = weight * f.kept_weight - first / denominator * f.step;
    store(m + i, first, part);
    store(v + i, second, part);
    store(weights + i, updated, part);
    if constexpr (std::is_same_v<A, float>) {
      if (compute != nullptr) {
        store(compute + i, updated, part);
      }
    }
  });
}

}  // namespace

void op::Adam::run(CpuBackend& cpu) const {
  if (update->finite == 0) {
    return;
  }
  bf16* copy = compute.empty() || compute.data == masters.data ? nullptr : compute.host<bf16>();
  dispatch_master(masters.dtype, [&]<class A>() {
    const Factors<A> factors(settings, *state, *update);
    for_chunks(cpu.threads(), masters.size(), kChunk, [&](int64_t begin, int64_t end) {
      update_part(masters.host<A>() + begin, m.host<A>() + begin, v.host<A>() + begin,
                  copy == nullptr ? nullptr : copy + begin, gradients.host<A>() + begin, factors, end - begin);
    });
  });
}

}  // namespace tandem::backend
