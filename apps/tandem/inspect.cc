// tandem inspect: shows the content of a run, checkpoint, model or prepared directory, and checks it.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/error.h"
#include "core/human.h"
#include "store/inspection.h"

namespace tandem::cli {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

struct InspectArguments {
  std::string path;
  bool verify = true, json = false, tensors = false;
};

// The content of one directory with a manifest, or of a run with several.
struct Report {
  std::optional<fs::path> run;
  fs::path latest, best;  // the links of a run; empty if absent
  std::vector<store::Inspected> parts;
  std::vector<std::string> damage;
};

Report inspect(const InspectArguments& arguments) {
  const fs::path path = arguments.path;
  std::error_code error;
  require(fs::exists(path, error), "{} does not exist", path.string());
  require(fs::is_directory(path, error), "{} is a file: give a run, checkpoint, model or prepared directory",
          path.string());
  Report report;
  std::vector<fs::path> directories = {path};
  if (!has_manifest(path)) {
    directories = store::list_checkpoints(path);
    require(fs::is_directory(path / "checkpoints", error),
            "{} is neither a run nor a checkpoint, model or prepared directory (it has no manifest.json)",
            path.string());
    report.run = path;
    report.latest = store::link_target(path, "latest").filename();
    report.best = store::link_target(path, "best").filename();
  }
  for (const fs::path& directory : directories) {
    try {
      report.parts.push_back(store::inspect_directory(directory, arguments.verify));
      const auto& damage = report.parts.back().damage;
      report.damage.insert(report.damage.end(), damage.begin(), damage.end());
    } catch (const Error& fault) {
      report.damage.emplace_back(fault.what());
    }
  }
  return report;
}

Json to_json(const store::Inspected& part, bool tensors) {
  Json json = {{"path", part.path.string()},
               {"kind", part.kind},
               {"bytes", part.bytes},
               {"files", Json::array()},
               {"damage", part.damage}};
  if (part.inference_bytes > 0) {
    json["inference_bytes"] = part.inference_bytes;
    json["parameters"] = part.parameters;
  }
  if (part.state) {
    json["step"] = part.state->step;
    json["epochs"] = part.state->epochs_done;
    json["training_seconds"] = part.state->elapsed_seconds;
    json["metrics_step"] = part.state->metrics_step;
    json["metrics"] = part.state->metrics;
  }
  if (part.model) {
    json["model"] = store::describe(*part.model);
  }
  for (const store::InspectedFile& file : part.files) {
    Json entry = {{"name", file.file.name},
                  {"role", file.file.role},
                  {"bytes", file.file.bytes},
                  {"checksum", file.file.checksum},
                  {"holds", file.holds}};
    for (size_t i = 0; tensors && i < file.tensors.size(); ++i) {
      const store::TensorInfo& tensor = file.tensors[i];
      entry["tensors"].push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    }
    json["files"].push_back(entry);
  }
  return json;
}

void print_json(const Report& report, bool tensors) {
  Json json = {{"sound", report.damage.empty()}, {"damage", report.damage}, {"directories", Json::array()}};
  if (report.run) {
    json["run"] = report.run->string();
    json["latest"] = report.latest.string();
    json["best"] = report.best.string();
  }
  for (const store::Inspected& part : report.parts) {
    json["directories"].push_back(to_json(part, tensors));
  }
  std::cout << json.dump(2) << "\n";
}

std::string metrics_text(const store::CheckpointState& state) {
  std::string text;
  for (const auto& [name, value] : state.metrics) {
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

void print_facts(const store::Inspected& part) {
  if (part.state) {
    const store::CheckpointState& s = *part.state;
    fmt::print("  step {}, {:.2f} epochs, {} of training\n", grouped(s.step), s.epochs_done,
               human_duration(s.elapsed_seconds));
    if (!s.metrics.empty()) {
      fmt::print("  validation at step {}: {}\n", grouped(s.metrics_step), metrics_text(s));
    }
  }
  if (part.model) {
    fmt::print("  model: {}; {} parameters\n", store::describe(*part.model), grouped(part.parameters));
  }
}

void print_directory(const store::Inspected& part, const InspectArguments& arguments) {
  const std::string inference =
      part.inference_bytes > 0
          ? fmt::format(", {} of them for translating", human_bytes(static_cast<double>(part.inference_bytes)))
          : "";
  const char* sound = !arguments.verify ? "not checked" : part.damage.empty() ? "sound" : "DAMAGED";
  fmt::print("{}: {}, {}{}; {}\n", part.path.string(), part.kind, human_bytes(static_cast<double>(part.bytes)),
             inference, sound);
  print_facts(part);
  for (const store::InspectedFile& file : part.files) {
    fmt::print("  {:<22} {:<30} {:>10}  {}\n", file.file.name, file.file.role,
               human_bytes(static_cast<double>(file.file.bytes)), file.holds);
    for (size_t i = 0; arguments.tensors && i < file.tensors.size(); ++i) {
      const store::TensorInfo& tensor = file.tensors[i];
      fmt::print("    {:<48} {} [{}]\n", tensor.name, tensor.dtype, fmt::join(tensor.shape, ", "));
    }
  }
}

// Prints one line per checkpoint, then the details of the newest.
void print_run(const Report& report, const InspectArguments& arguments) {
  fmt::print("{}: run with {} checkpoint{}\n", report.run->string(), report.parts.size(),
             report.parts.size() == 1 ? "" : "s");
  for (const store::Inspected& part : report.parts) {
    const fs::path name = part.path.filename();
    fmt::print("  {} {:>10}{}{}{}{}\n", name.string(), human_bytes(static_cast<double>(part.bytes)),
               part.state && part.state->metrics_step == part.state->step ? "  " + metrics_text(*part.state) : "",
               name == report.latest ? "  (latest)" : "", name == report.best ? "  (best)" : "",
               part.damage.empty() ? "" : "  DAMAGED");
  }
  if (!report.parts.empty()) {
    print_directory(report.parts.back(), arguments);
  }
}

void run_inspect(const InspectArguments& arguments) {
  const Report report = inspect(arguments);
  if (arguments.json) {
    print_json(report, arguments.tensors);
  } else if (report.run) {
    print_run(report, arguments);
  } else {
    for (const store::Inspected& part : report.parts) {
      print_directory(part, arguments);
    }
  }
  std::fflush(stdout);
  require(report.damage.empty(), "{}", fmt::join(report.damage, "\n"));
}

}  // namespace

void add_inspect(Program& program) {
  auto arguments = std::make_shared<InspectArguments>();  // shared with the action, which runs after this returns
  program.add("inspect", "Shows what a run, checkpoint, model or prepared directory holds and checks every file.")
      .option("path", arguments->path, "Run, checkpoint, model or prepared directory")
      .required()
      .no_flag("--no-verify", arguments->verify, "Do not check sizes and checksums")
      .flag("--json", arguments->json, "Print JSON")
      .flag("--tensors", arguments->tensors, "List every tensor")
      .example("tandem inspect runs/en-de")
      .run([arguments] { run_inspect(*arguments); });
}

}  // namespace tandem::cli
