#include "train/gradient_update.h"

namespace tandem::train {

namespace {

// One rank alone.
class OwnUpdate final : public GradientUpdate {
 public:
  OwnUpdate(backend::Backend& backend, ModelState& weights)
      : backend_(backend), weights_(weights), squares_(backend.allocate(sizeof(double))) {}

  int64_t own_parameters() const override { return weights_.masters().size(); }
  void begin(const StepIds& /*ids*/) override {}
  model::Gradients gradients(bool /*last*/) override { return weights_.gradients(); }
  void finish(optim::Optimizer& optimizer, const StepIds& /*ids*/, StepInput* input, StepResult* result) override {
    const View squares = squares_.view(DType::f64, 1, 1);
    backend_.run(backend::op::SumOfSquares{.sum = squares, .x = weights_.gradients()});
    optimizer.prepare(&result->update, squares);
    optimizer.update({weights_.masters(), weights_.copy(), weights_.average(), weights_.gradients()}, 0, &input->state,
                     &result->update);
  }

 private:
  backend::Backend& backend_;
  ModelState& weights_;
  Buffer squares_;  // f64: the sum of the gradient's
};

}  // namespace

DType wire_type(const DistConfig& config, const backend::Backend& backend, DType compute) {
  using Wire = DistConfig::Wire;
  const bool gpu = backend.stream().handle != nullptr;
  require(config.wire != Wire::f64 || !gpu,
          "dist.wire = \"f64\" is for CPUs: use \"auto\", \"f32\" or \"bf16\" on GPUs");
  const bool automatic_f64 = compute == DType::f32 && !gpu;
  return config.wire == Wire::f64 || (config.wire == Wire::automatic && automatic_f64) ? DType::f64
         : config.wire == Wire::bf16                                                   ? DType::bf16
                                                                                       : DType::f32;
}

std::unique_ptr<GradientUpdate> make_gradient_update(backend::Backend& backend, const model::Transformer& model,
                                                     ModelState& weights, dist::Communicator& communicator,
                                                     const TrainConfig& config, bool whole_parameters) {
  const DType wire = wire_type(config.dist, backend, weights.weights().compute.dtype);
  if (communicator.size() == 1 && wire != DType::f64) {
    return std::make_unique<OwnUpdate>(backend, weights);
  }
  return make_summed_update(backend, model, weights, communicator, config.dist, wire, whole_parameters);
}

}  // namespace tandem::train
