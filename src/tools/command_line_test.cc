#include "tools/command_line.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace farverbs::tools {
namespace {

void register_probe(CLI::App& app, int* exit_code) {
  CLI::App* probe = app.add_subcommand("probe", "A tool for this test.");
  static int size = 0;
  probe->add_option("--size", size, "Bytes.");
  probe->callback([exit_code] { *exit_code = size == 7 ? kExitFailed : kExitOk; });
}

void register_nested(CLI::App& app, int*) {
  CLI::App* nested = app.add_subcommand("nested", "Commands below a command.");
  nested->require_subcommand(1);
  nested->add_subcommand("client", "One end.");
}

void register_thrower(CLI::App& app, int*) {
  app.add_subcommand("thrower", "Fails unexpectedly.")->callback([] {
    throw std::runtime_error("the disk is on fire");
  });
}

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

Outcome run(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "farverbs");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_command_line(
      static_cast<int>(arguments.size()), arguments.data(),
      {{"probe", register_probe}, {"nested", register_nested}, {"thrower", register_thrower}});
  std::string out = testing::internal::GetCapturedStdout();
  return {code, std::move(out), testing::internal::GetCapturedStderr()};
}

TEST(CommandLine, ReturnsWhatTheToolSets) {
  EXPECT_EQ(run({"probe", "--size", "1"}).exit_code, kExitOk);
  EXPECT_EQ(run({"probe", "--size", "7"}).exit_code, kExitFailed);
}

TEST(CommandLine, HelpAndVersionSucceedOnStdout) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.exit_code, kExitOk);
  EXPECT_NE(help.out.find("Exit codes: 0"), std::string::npos);
  EXPECT_NE(help.out.find("A tool for this test."), std::string::npos);
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit_code, kExitOk);
  EXPECT_EQ(version.out.rfind("farverbs ", 0), 0u);
}

TEST(CommandLine, NoArgumentsShowsTheHelpAsAnError) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_NE(outcome.err.find("probe"), std::string::npos);
}

TEST(CommandLine, MistypedCommandNamesTheOneMeant) {
  const Outcome outcome = run({"prob", "--size", "1"});
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_NE(outcome.err.find("unknown command 'prob'; did you mean 'probe'?"), std::string::npos)
      << outcome.err;
}

TEST(CommandLine, MistypedNestedCommandNamesTheOneMeant) {
  const Outcome outcome = run({"nested", "cleint"});
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_NE(outcome.err.find("farverbs nested: unknown command 'cleint'; did you mean 'client'?"),
            std::string::npos)
      << outcome.err;
}

TEST(CommandLine, MistypedOptionNamesTheOneMeant) {
  for (const char* argument : {"--sise", "--sise=1"}) {
    const Outcome outcome = run({"probe", argument});
    EXPECT_EQ(outcome.exit_code, kExitUsage);
    EXPECT_NE(outcome.err.find("farverbs probe: unknown option '--sise'; did you mean '--size'?"),
              std::string::npos)
        << outcome.err;
  }
}

TEST(CommandLine, BadValueSaysWhereToLook) {
  const Outcome outcome = run({"probe", "--size", "many"});
  EXPECT_EQ(outcome.exit_code, kExitUsage);
  EXPECT_NE(outcome.err.find("See 'farverbs probe --help'"), std::string::npos) << outcome.err;
}

TEST(CommandLine, SurprisesFailWithoutTerminating) {
  const Outcome outcome = run({"thrower"});
  EXPECT_EQ(outcome.exit_code, kExitFailed);
  EXPECT_NE(outcome.err.find("the disk is on fire"), std::string::npos);
}

TEST(ClosestWord, IgnoresWordsThatShareNothing) {
  EXPECT_EQ(closest_word("lab", {"perf", "ping"}), "");
  EXPECT_EQ(closest_word("xy", {"cp"}), "");
  EXPECT_EQ(closest_word("pign", {"perf", "ping"}), "ping");
}

}  // namespace
}  // namespace farverbs::tools
