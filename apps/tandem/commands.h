// Every subcommand has its own file, which declares its options and its action.
#pragma once

#include "cli.h"

namespace tandem::cli {

void add_demo(Program& program);
void add_secret(Program& program);
void add_score(Program& program);
void add_prepare(Program& program);
void add_train(Program& program);
void add_translate(Program& program);
void add_evaluate(Program& program);
void add_inspect(Program& program);
void add_report(Program& program);
void add_watch(Program& program);
void add_average(Program& program);
void add_bench(Program& program);
void add_tune(Program& program);
void add_launch(Program& program);
void add_agent(Program& program);
void add_preflight(Program& program);
void add_preflight_worker(Program& program);

}  // namespace tandem::cli
