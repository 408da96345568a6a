#pragma once

#include <nanobind/nanobind.h>

// Adds the edge list functions to the module.
void define_edges(nanobind::module_ &m);
