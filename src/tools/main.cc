#include "tools/command_line.h"

int main(int argc, char** argv) {
  return farverbs::tools::run_command_line(argc, argv, farverbs::tools::compiled_tools());
}
