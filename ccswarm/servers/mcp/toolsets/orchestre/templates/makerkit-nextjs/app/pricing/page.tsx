import { costs, money, PLANS } from "../../lib/plans";

export const metadata = { title: "Pricing" };

export default function Pricing() {
  return (
    <>
      <h1>Pricing</h1>
      <div className="plans">
        {PLANS.map((plan) => (
          <section className="plan" key={plan.id}>
            <h2>{plan.name}</h2>
            <p>
              {money(costs(plan, 1, "month"))} a month, or {money(costs(plan, 1, "year"))} a year, for each person
            </p>
            <ul>
              {plan.features.map((feature) => (
                <li key={feature}>{feature}</li>
              ))}
            </ul>
          </section>
        ))}
      </div>
    </>
  );
}
