// Reads and writes state.json, the state that resuming needs besides the tensors.
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/parse.h"
#include "store/checkpoint.h"

namespace tandem::store {

using Json = nlohmann::ordered_json;

namespace {

constexpr int kVersion = 1;

// JSON has no NaN or infinity: null stands for both, and is read as NaN.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
double number(const Json& value) { return value.is_null() ? NAN : value.get<double>(); }

int64_t count(const Json& json, const char* key) {
  const auto value = json.at(key).get<int64_t>();
  require(value >= 0, "{} is {}", key, value);
  return value;
}

CheckpointState parse(const std::string& text) {
  require(is_shallow_json(text), "its brackets are nested more than 32 deep");
  const Json json = Json::parse(text);
  const Json& version = json.at("version");
  require(version == kVersion, "its version is {}, this program reads version {}",
          version.is_number() ? version.dump() : version.type_name(), kVersion);
  CheckpointState s;
  s.step = count(json, "step");
  s.updates = count(json, "updates");
  s.cursor = {count(json.at("cursor"), "epoch"), count(json.at("cursor"), "index")};
  s.epochs_done = number(json.at("epochs_done"));
  s.elapsed_seconds = number(json.at("elapsed_seconds"));
  s.pairs = count(json, "pairs");
  s.source_tokens = count(json, "source_tokens");
  s.target_tokens = count(json, "target_tokens");
  s.seed = json.at("seed").get<uint64_t>();
  s.data_fingerprint = json.at("data_fingerprint").get<std::string>();
  if (json.contains("round")) {
    s.micro_batch.source = count(json.at("round"), "source");
    s.micro_batch.target = count(json.at("round"), "target");
  }
  s.validations = count(json, "validations");
  s.bad_validations = count(json, "bad_validations");
  if (!json.at("best_score").is_null()) {
    s.best_score = json.at("best_score").get<double>();
  }
  s.best_step = count(json, "best_step");
  for (const auto& [name, value] : json.at("metrics").items()) {
    s.metrics[name] = number(value);
  }
  s.metrics_step = json.at("metrics_step").get<int64_t>();
  s.skipped = count(json, "skipped");
  s.skipped_in_a_row = count(json, "skipped_in_a_row");
  s.rollbacks = count(json, "rollbacks");
  s.learning_rate_factor = json.at("learning_rate_factor").get<double>();
  return s;
}

}  // namespace

std::string to_json(const CheckpointState& s) {
  Json metrics = Json::object();
  for (const auto& [name, value] : s.metrics) {
    metrics[name] = number(value);
  }
  const Json json = {{"version", kVersion},
                     {"step", s.step},
                     {"updates", s.updates},
                     {"cursor", {{"epoch", s.cursor.epoch}, {"index", s.cursor.index}}},
                     {"epochs_done", number(s.epochs_done)},
                     {"elapsed_seconds", number(s.elapsed_seconds)},
                     {"pairs", s.pairs},
                     {"source_tokens", s.source_tokens},
                     {"target_tokens", s.target_tokens},
                     {"seed", s.seed},
                     {"data_fingerprint", s.data_fingerprint},
                     {"round", {{"source", s.micro_batch.source}, {"target", s.micro_batch.target}}},
                     {"validations", s.validations},
                     {"bad_validations", s.bad_validations},
                     {"best_score", s.best_score ? number(*s.best_score) : Json(nullptr)},
                     {"best_step", s.best_step},
                     {"metrics", metrics},
                     {"metrics_step", s.metrics_step},
                     {"skipped", s.skipped},
                     {"skipped_in_a_row", s.skipped_in_a_row},
                     {"rollbacks", s.rollbacks},
                     {"learning_rate_factor", s.learning_rate_factor}};
  return json.dump(2) + "\n";
}

CheckpointState parse_state(const std::string& text, const std::string& name) {
  try {
    return parse(text);
  } catch (const std::exception& error) {
    fail("{} is damaged: {}", name, error.what());
  }
}

}  // namespace tandem::store
