module example.org/doubled
