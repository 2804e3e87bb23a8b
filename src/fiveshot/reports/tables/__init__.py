"""Tables: what one says, the formats it is printed in, and those that a benchmark makes."""
