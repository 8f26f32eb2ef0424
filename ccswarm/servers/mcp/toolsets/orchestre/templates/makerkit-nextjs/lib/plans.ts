export type Interval = "month" | "year";

export interface Plan {
  id: string;
  name: string;
  /** In cents, for one seat and month. */
  price: number;
  /** How many people a team may have; null: any number. */
  seats: number | null;
  features: string[];
}

/** Of a year that is paid at once. */
export const FREE_MONTHS = 2;

export const PLANS: readonly Plan[] = [
  { id: "free", name: "Free", price: 0, seats: 1, features: ["One project", "Community support"] },
  { id: "team", name: "Team", price: 1200, seats: 20, features: ["Any number of projects", "Roles", "Support by mail"] },
  { id: "business", name: "Business", price: 2900, seats: null, features: ["All of Team", "Audit log", "Single sign-on"] },
];

export function planOf(id: string): Plan | undefined {
  return PLANS.find((plan) => plan.id === id);
}

/** What a team pays in each interval, in cents. Throws RangeError for a team that the plan does not bear. */
export function costs(plan: Plan, seats: number, interval: Interval): number {
  if (!Number.isInteger(seats) || seats < 1 || (plan.seats !== null && seats > plan.seats)) {
    throw new RangeError(`${plan.name} is for ${plan.seats === null ? "any number of" : `1 to ${plan.seats}`} people`);
  }
  return plan.price * seats * (interval === "year" ? 12 - FREE_MONTHS : 1);
}

export function money(cents: number): string {
  return new Intl.NumberFormat("en-US", { style: "currency", currency: "USD" }).format(cents / 100);
}
