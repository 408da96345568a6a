#pragma once

#include <nanobind/nanobind.h>

// Adds the functions of graphs on disk to the module.
void define_folders(nanobind::module_ &m);
