// The builds in this library, best first, and which of them this machine can run.
#pragma once
#include <string>
#include <vector>

#include "plugins/native/step.h"

namespace forerun {

std::vector<const Build*> usable_builds();

// Gives a build by name, the best one for an empty name, or null.
const Build* find_build(const std::string& name);

}  // namespace forerun
