"""What QKClip is made of: what a pass says of its heads, what ranks agree on, weights scaled."""
