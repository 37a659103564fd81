// Package torture kills, stops and cuts off real runs of the built binary and
// looks whether two jobs of one mutex were ever alive at once. An ordinary test
// run does one round of each fault; `make torture ROUNDS=30` does more.
package torture
