# Install rules and the exported package.
include_guard(GLOBAL)
