#include "report/answers.h"

#include "report/sentences/sentences.h"

namespace tandem::report {

std::vector<Answer> answers_to(const observe::RunFacts& f) {
  std::vector<Answer> answers;
  const auto ask = [&](const char* key, const char* question, auto verdict_of, auto text_of, const auto& facts) {
    observe::Verdict verdict = verdict_of(facts);
    std::string text = text_of(facts, verdict);
    answers.push_back({key, question, std::move(verdict), std::move(text)});
  };
  const char* work = f.work.gpu ? "Are the GPUs doing work?" : "Is the hardware doing work?";
  ask("how_long", "How long does it take?", observe::how_long, how_long_text, f.duration);
  ask("trained_enough", "Is it fully trained?", observe::trained_enough, trained_enough_text, f.learning);
  ask("overfitting", "Does it overfit?", observe::overfitting, overfitting_text, f.learning);
  ask("gpu_work", work, observe::gpu_work, gpu_work_text, f.work);
  ask("network", "Is the network the bottleneck?", observe::network, network_text, f.exchange);
  ask("learning_rate", "How does the learning rate go?", observe::learning_rate_explained, learning_rate_text, f.rates);
  ask("training_set", "What is the training set?", observe::training_set, training_set_text, f.training_set);
  ask("checkpoint_contents", "What does a checkpoint consist of?", observe::checkpoint_contents,
      checkpoint_contents_text, f.storage);
  ask("checkpoint_size", "How big is a checkpoint?", observe::checkpoint_size, checkpoint_size_text, f.storage);
  ask("step_time", "How long is a step?", observe::step_time, step_time_text, f.steps);
  ask("step_and_network", "How do step time and network go together?", observe::step_and_network, step_and_network_text,
      f.exchange);
  ask("slow_rank", "Does one rank hold up the others?", observe::slow_rank, slow_rank_text, f.exchange);
  ask("nonfinite", "Was every number finite?", observe::nonfinite, nonfinite_text, f.finiteness);
  ask("disk", "Will the disk be full?", observe::disk, disk_text, f.storage);
  return answers;
}

}  // namespace tandem::report
