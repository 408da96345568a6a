#pragma once

#include <nanobind/nanobind.h>

// Adds low-pass filters along a graph to the module.
void define_filters(nanobind::module_ &m);
