"""Who connects, what strangers show, and HTTP read strictly."""
