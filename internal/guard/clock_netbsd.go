package guard

const clockMonotonic = 3 // CLOCK_MONOTONIC
