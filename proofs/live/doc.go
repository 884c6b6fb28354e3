// Package live proves what RELIABILITY section 5 says of a home at work: a
// full disk, a message that kills, wake-ups that are lost, ids that come again,
// and a foreign pop. The services are the real ones, in this process or in one of
// their own where something has to die. What is not about the files of one home is
// shown on the sites of package topology as well: TOPOLOGY=split, or cluster.
package live
