// The client of `farverbs cp`: one copy, over as many connections as it takes. A connection that
// breaks is made again and continues where the last one was.
#pragma once

#include <functional>
#include <string>

#include "farverbs/base/result.h"
#include "tools/cp/location.h"
#include "tools/cp/progress.h"
#include "tools/cp/verbs_link.h"

namespace farverbs::tools::copy {

struct CopyOptions {
  Location source;
  Location destination;  // exactly one of the two is remote
  bool recursive = false;
  bool always = false;
  bool sync = false;
  unsigned retries = 5;  // connections in a row that bring nothing
  LinkOptions link;
};

// The Error is what ended it; files that could not be copied are among the progress's problems.
Result<void> run_copy(const CopyOptions& options, Progress& progress,
                      const std::function<bool()>& stop);

}  // namespace farverbs::tools::copy
