"""What QKClip is made of: where projections are, what a pass says, what ranks agree on."""
