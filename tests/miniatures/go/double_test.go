package doubled
