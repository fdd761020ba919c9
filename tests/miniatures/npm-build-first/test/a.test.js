const double = require("..");
