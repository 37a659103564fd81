package lease

const clockMonotonic = 3 // CLOCK_MONOTONIC, which x/sys does not name here
