// The model against PyTorch's numbers (tests/golden/make_golden.py): logits, losses, every gradient, and the weights
// after ten Adam updates.
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/matrix.h"
#include "test_model.h"

namespace tandem::testing {
namespace {

class Golden {
 public:
  explicit Golden(const std::string& name) {
    const std::string path = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors";
    std::ifstream file(path, std::ios::binary);
    require(file.good(), "{} cannot be opened; make it with tests/golden/make_golden.py", path);
    data_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    require(data_.size() > sizeof header_bytes, "{} is cut short", path);
    std::memcpy(&header_bytes, data_.data(), sizeof header_bytes);
    require(header_bytes <= data_.size() - sizeof header_bytes, "{} is cut short", path);
    begin_ = sizeof header_bytes + header_bytes;
    header_ =
        nlohmann::json::parse(data_.begin() + sizeof header_bytes, data_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }

  std::string config(const char* key) const { return header_.at("__metadata__").at(key).get<std::string>(); }
  int integer(const char* key) const { return std::stoi(config(key)); }

  template <class T>
  std::vector<T> read(const std::string& name) const {
    const auto& offsets = header_.at(name).at("data_offsets");
    const size_t first = begin_ + offsets.at(0).get<size_t>(), last = begin_ + offsets.at(1).get<size_t>();
    require(last <= data_.size(), "{} ends after the golden file", name);
    std::vector<T> values((last - first) / sizeof(T));
    std::memcpy(values.data(), data_.data() + first, values.size() * sizeof(T));
    return values;
  }

  Sentences sentences(const std::string& side) const {
    const std::vector<int32_t> tokens = read<int32_t>(side + "_tokens");
    Sentences result;
    auto next = tokens.begin();
    for (const int32_t length : read<int32_t>(side + "_lengths")) {
      result.emplace_back(next, next + length);
      next += length;
    }
    return result;
  }

 private:
  std::string data_;
  size_t begin_ = 0;
  nlohmann::json header_;
};

model::ModelConfig config_of(const Golden& golden) {
  const std::map<std::string, backend::Activation> activations = {
      {"relu", backend::Activation::relu}, {"gelu", backend::Activation::gelu}, {"swish", backend::Activation::swish}};
  const std::map<std::string, model::Tie> ties = {
      {"all", model::Tie::all}, {"output", model::Tie::output}, {"none", model::Tie::none}};
  model::ModelConfig config;
  config.source_vocabulary = golden.integer("source_vocabulary");
  config.target_vocabulary = golden.integer("target_vocabulary");
  config.encoder_layers = golden.integer("encoder_layers");
  config.decoder_layers = golden.integer("decoder_layers");
  config.width = 16;
  config.heads = 4;
  config.feed_forward = 24;
  config.norm = golden.config("norm") == "pre" ? model::NormPlace::pre : model::NormPlace::post;
  config.activation = activations.at(golden.config("activation"));
  config.tie = ties.at(golden.config("tie"));
  config.attention_bias = golden.config("attention_bias") == "True";
  config.max_length = 8;
  config.dropout = config.attention_dropout = config.activation_dropout = 0;
  return config;
}

struct Run {
  const char* file;
  DType dtype;
  double tolerance;         // of logits, losses, gradients
  double update_tolerance;  // of the weights after ten updates; the optimizer's scalars are f32 in every run
};

class GoldenModel : public ::testing::TestWithParam<Run> {
 protected:
  void compare_parameters(const View& flat, const std::string& what, double tolerance) {
    for (const Parameter& parameter : tested_.model.parameters().all()) {
      const std::vector<double> expected = golden_.read<double>(what + "/" + parameter.name);

      const std::vector<double> actual = to_doubles(flat.slice_cols(parameter.offset, parameter.size()));
      EXPECT_TRUE(close(std::span(actual), std::span(expected), tolerance, tolerance)) << what << " " << parameter.name;
    }
  }

  Golden golden_{GetParam().file};
  TestModel tested_{config_of(golden_), GetParam().dtype};
  TestBatch batch_{golden_.sentences("source"), golden_.sentences("target")};
};

constexpr float kSmoothing = 0.125F;

TEST_P(GoldenModel, EqualsPyTorch) {
  const double tolerance = GetParam().tolerance;
  for (const Parameter& parameter : tested_.model.parameters().all()) {
    assign(tested_.weights.masters.slice_cols(parameter.offset, parameter.size()),
           golden_.read<double>("initial/" + parameter.name));
  }
  const std::vector<double> logits =
      to_doubles(tested_.model.logits(tested_.weights, batch_.view(nullptr), tested_.arena));
  const std::vector<double> expected_logits = golden_.read<double>("logits");
  EXPECT_TRUE(close(std::span(logits), std::span(expected_logits), tolerance, tolerance));

  const View m = tested_.flat(tested_.master), v = tested_.flat(tested_.master);
  const backend::AdamSettings settings{
      .beta1 = 0.875F, .beta2 = 0.96875F, .epsilon = std::ldexp(1.0F, golden_.integer("epsilon_exponent"))};
  backend::UpdateState count;
  double sum = 0;
  for (int update = 1; update <= 10; ++update) {
    tested_.state = {.step = static_cast<uint32_t>(update - 1), .loss_scale = 0x1p-4F, .learning_rate = 0x1p-7F};
    backend::LossTotals totals;
    tested_.backend->fill_zero(tested_.gradients);
    tested_.arena.reset();
    tested_.model.train(tested_.weights, tested_.gradients, batch_.view(&tested_.state), kSmoothing, &totals,
                        tested_.arena);
    if (update == 1) {
      const std::vector<double> losses = {totals.smoothed, totals.nll};
      const std::vector<double> expected_losses = golden_.read<double>("losses");
      EXPECT_TRUE(close(std::span(losses), std::span(expected_losses), tolerance, tolerance));
      EXPECT_EQ(totals.tokens, 16);
      compare_parameters(tested_.gradients, "gradient", tolerance);
    }
    prepare_update(*tested_.backend, &count, host_view(&sum, 1, 1), tested_.gradients, {settings});
    ASSERT_EQ(count.finite, 1u);
    tested_.backend->run(backend::op::Adam{.masters = tested_.weights.masters,
                                           .m = m,
                                           .v = v,
                                           .gradients = tested_.gradients,
                                           .settings = settings,
                                           .state = &tested_.state,
                                           .update = &count});
  }
  compare_parameters(tested_.weights.masters, "updated", GetParam().update_tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GoldenModel,
    ::testing::Values(Run{"pre_relu_all", DType::f64, 1e-10, 1e-7}, Run{"pre_relu_all", DType::f32, 1e-5, 1e-4},
                      Run{"post_gelu_none", DType::f64, 1e-10, 1e-7}, Run{"post_gelu_none", DType::f32, 1e-5, 1e-4},
                      Run{"pre_swish_output", DType::f64, 1e-10, 1e-7},
                      Run{"pre_swish_output", DType::f32, 1e-5, 1e-4}),
    [](const auto& tested) { return std::string(tested.param.file) + "_" + name_of(tested.param.dtype); });

}  // namespace
}  // namespace tandem::testing
