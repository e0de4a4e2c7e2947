#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device.cuh"

namespace tandem::backend {

namespace {

using namespace cuda;

template <class H>
struct Arguments {
  float *masters, *m, *v;
  H* compute;  // may be null
  const float* gradients;
  int64_t n;
  AdamSettings settings;
  const StepState* state;
  const UpdateState* update;
};

// The factors of every element's update, computed once per thread in double.
struct Factors {
  float clip, lerp1, beta2, rest2, step, root_correction2, epsilon, added_decay, kept_weight;

  __device__ Factors(const AdamSettings& settings, const StepState& state, const UpdateState& update)
      : clip(update.clip_factor),
        lerp1(static_cast<float>(1 - static_cast<double>(settings.beta1))),
        beta2(settings.beta2),
        rest2(static_cast<float>(1 - static_cast<double>(settings.beta2))),
        step(static_cast<float>(static_cast<double>(state.learning_rate) / update.bias_correction1)),
        root_correction2(static_cast<float>(sqrt(static_cast<double>(update.bias_correction2)))),
        epsilon(settings.epsilon),
        added_decay(settings.decoupled ? 0.0F : settings.weight_decay),
        kept_weight(settings.decoupled ? static_cast<float>(1 - static_cast<double>(state.learning_rate) *
                                                                    static_cast<double>(settings.weight_decay))
                                       : 1.0F) {}
};

// PyTorch's Adam and AdamW.
__device__ void update_element(float& weight, float& m, float& v, float gradient, const Factors& f) {
  gradient = gradient * f.clip + weight * f.added_decay;
  m += (gradient - m) * f.lerp1;
  v = v * f.beta2 + gradient * gradient * f.rest2;
  const float denominator = sqrtf(v) / f.root_correction2 + f.epsilon;
  weight = weight * f.kept_weight - m / denominator * f.step;
}

template <class H, bool kVector>
__global__ void __launch_bounds__(kFlatThreads, kFlatBlocks) adam_kernel(const Arguments<H> a) {
  await_previous();
  if (a.update->finite == 0) {
    return;
  }
  const Factors factors(a.settings, *a.state, *a.update);
  for_fours(a.n, [&](int64_t i) {
    float4 weight = load4<kVector>(a.masters, i, a.n);
    float4 m = load4<kVector>(a.m, i, a.n);
    float4 v = load4<kVector>(a.v, i, a.n);
    const float4 gradient = load4<kVector>(a.gradients, i, a.n);
    update_element(weight.x, m.x, v.x, gradient.x, factors);
    update_element(weight.y, m.y, v.y, gradient.y, factors);
    update_element(weight.z, m.z, v.z, gradient.z, factors);
    update_element(weight.w, m.w, v.w, gradient.w, factors);
    store4<kVector>(a.masters, i, a.n, weight);
    store4<kVector>(a.m, i, a.n, m);
    store4<kVector>(a.v, i, a.n, v);
    if (a.compute != nullptr) {
      store4<kVector>(a.compute, i, a.n, weight);
    }
  });
}

}  // namespace

void op::Adam::run(CudaBackend& gpu) const {
  const bool copy = !compute.empty() && compute.data != masters.data;
  require(masters.dtype == DType::f32 && (!copy || compute.dtype == DType::bf16),
          "adam on a GPU takes f32 masters and a bf16 copy, not {} and {}", name_of(masters.dtype),
          name_of(compute.dtype));
  if (masters.size() == 0) {
    return;
  }
  const Arguments<Bf16> arguments{data<float>(masters),
                                  data<float>(m),
                                  data<float>(v),
                                  copy ? data<Bf16>(compute) : nullptr,
                                  data<const float>(gradients),
                                  masters.size(),
                                  settings,
                                  state,
                                  update};
  const bool vectors = vectors_of_4(masters) && vectors_of_4(m) && vectors_of_4(v) && vectors_of_4(gradients) &&
                       (!copy || vectors_of_4(compute));
  const auto kernel = vectors ? adam_kernel<Bf16, true> : adam_kernel<Bf16, false>;
  launch("adam", kernel, {flat_blocks(masters.size(), gpu.processors()), kFlatThreads, 0, gpu.queue()}, arguments);
}

}  // namespace tandem::backend
